/**
 * `node test/chaos/report.ts`: draws bench/results/chaos.json as docs/resilience.svg and as tables in
 * bench/results/chaos.md.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { quantile } from '../../bench/stats.ts';
import { ROOT } from '../support/where.ts';
import { picture } from './picture.ts';
import { type Run, resultSchema } from './result.ts';

export const RESULT = join(ROOT, 'bench/results/chaos.json');
const PAGE = join(ROOT, 'bench/results/chaos.md');
const PICTURE = join(ROOT, 'docs/resilience.svg');

const table = (head: readonly string[], rows: readonly (readonly (string | number)[])[]) =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
const ms = (value: number | null) =>
  value === null
    ? '–'
    : value < 100
      ? `${value.toFixed(1)} ms`
      : value < 10_000
        ? `${value.toFixed(0)} ms`
        : `${(value / 1_000).toFixed(1)} s`;

function about({ measured, options }: Run): string {
  const { replicas, slots } = options;
  const runs = Object.entries(measured).flatMap(([part, machine]) =>
    machine === undefined ? [] : [{ part, machine }],
  );
  const [first] = runs;
  if (first === undefined) return '';
  const { cores, cpu, node } = first.machine;
  const when = runs.map(
    ({ part, machine }) =>
      `(${part.toUpperCase()}) ${machine.date.slice(0, 16).replace('T', ' ')} UTC, load ${machine.load.toFixed(1)} before it began, ${Math.round(machine.stolen * 100)} % of the processor time it wanted went to other machines of its host`,
  );
  return `${cores} cores (${cpu}), Node ${node}; ${when.join('; ')}: a load above 1 was others' work on the same cores. ${replicas} replicas, each ${slots} answers at once.`;
}

function partA({ a }: Run): string[] {
  if (a === undefined) return [];
  const { accounts } = a;
  const requests = a.tallies.map(({ kind, requests, verdicts, retried, continued }) => [
    kind,
    requests,
    verdicts.ok,
    verdicts.failed,
    verdicts.broken,
    verdicts.false,
    verdicts.left,
    retried,
    continued,
  ]);
  const kinds = Map.groupBy(a.strikes, ({ fault }) => fault);
  const strikes = [...kinds]
    .sort(([one], [other]) => one.localeCompare(other))
    .map(([fault, all]) => {
      const took = all.map(({ at, until }) => (until === null ? Number.NaN : until - at));
      return [
        fault,
        all.length,
        ms(quantile(took, 0.5)),
        ms(Math.max(...took)),
        all.filter(({ until }) => until === null).length,
      ];
    });
  const latency = a.latency.map(({ what, calm, chaos }) => [
    what,
    ms(calm.p50),
    ms(calm.p99),
    ms(chaos.p50),
    ms(chaos.p99),
  ]);
  const most = (values: readonly number[]) => (values.length === 0 ? '–' : ms(Math.max(...values)));
  const half = (values: readonly number[]) => (values.length === 0 ? '–' : ms(quantile(values, 0.5)));
  return [
    `**(A)** ${(a.seconds / 60).toFixed(1)} minutes, ${a.perSecond.toFixed(1)} requests/s, ${Math.round(a.load * 100)} % of what the replicas that served could give.`,
    table(
      [
        'requests',
        'all',
        'right',
        'failed',
        'broke off, and said so',
        'wrong, or cut and not said',
        'client left',
        'tried elsewhere',
        'continued elsewhere',
      ],
      requests,
    ),
    table(['fault', 'times', 'until it served again: median', 'most', 'never'], strikes),
    table(['', 'calm: median', 'p99', 'with faults: median', 'p99'], latency),
    table(
      ['at the engines', ''],
      [
        ['attempts', accounts.attempts],
        [
          'answered whole by two engines, one of them paused or cut off',
          accounts.doubles - accounts.doublesWithinReach.length,
        ],
        ['the same, none of them paused or cut off', accounts.doublesWithinReach.length],
        [
          'from the client’s disconnect to the end at the engine: median, most',
          `${half(accounts.leftMs)}, ${most(accounts.leftMs)} (${accounts.leftMs.length} clients)`,
        ],
        [
          'from the end of a pause or cut to the end of an attempt that another node had taken over: median, most',
          `${half(accounts.takenOverMs)}, ${most(accounts.takenOverMs)} (${accounts.takenOverMs.length})`,
        ],
        ['still generating at the end', accounts.generating.length],
      ],
    ),
  ];
}

function partsBC({ b, c }: Run): string[] {
  const parts: string[] = [];
  if (b !== undefined)
    parts.push(
      `**(B)** r = ${b.pearson.toFixed(3)} over ${b.windows.filter(({ settled }) => settled).length} windows; ${b.tokensPerReplica.toFixed(1)} tokens/s for each replica more, of the ${b.engineTokensPerSecond} that its engine can give; ${b.requests} streams, ${b.errors} that did not end whole.`,
    );
  if (c !== undefined)
    parts.push(
      `**(C)** of ${c.requests} requests:`,
      table(
        [
          'gateway killed',
          'listened again after',
          'all agents back after that',
          'requests it cost',
          'served though they came in between',
          'failed without reason',
        ],
        c.kills.map(({ listensMs, allBackMs, failed, saved }, at) => [
          at + 1,
          ms(listensMs),
          ms(allBackMs),
          failed,
          saved,
          at === 0 ? c.unexcused.length : '',
        ]),
      ),
    );
  return parts;
}

function report(run: Run): string {
  const findings = table(
    ['', 'seen', 'required', ''],
    run.findings.map(({ what, seen, required, met }) => [what, seen, required, met ? '✓' : '✗']),
  );
  return [
    about(run),
    findings,
    '![Replicas, faults and answers over time; tokens per second against replicas](../../docs/resilience.svg)',
    ...partA(run),
    ...partsBC(run),
  ].join('\n\n');
}

/** Writes a run's tables and its picture. */
export function publish(run: Run): void {
  writeFileSync(PAGE, `# Chaos\n\n\`npm run chaos -- --report\` writes this page of chaos.json.\n\n${report(run)}\n`);
  writeFileSync(PICTURE, picture(run));
}

if (import.meta.main) publish(resultSchema.parse(JSON.parse(readFileSync(RESULT, 'utf8'))));
