/** One static deployment for a whole trace, as the paper has it (Figures 2, 8, 9 and 10), beside ours. */
import { table } from '../../../scheduler/validate/text-table.ts';
import { planText } from '../../orchestration/deployment-plan.ts';
import { reload } from '../../orchestration/orchestrators/reload.ts';
import type { TimelineResult } from '../../orchestration/timeline.ts';
import { row } from '../rows.ts';
import { lately, run, runOurs, staticOf } from './policies.ts';
import type { RunOptions, Section } from './section.ts';
import { type Setup, SLOT_S, setupIn } from './setups.ts';

const DAY_S = 86_400;
const HOUR_S = 3600;
/** The paper's traces have 800 minutes and more. */
const MINUTES = { quick: 90, whole: 800 };
/** Seconds of each of the spans P1 to P6, cut from the run at equal distances. */
const SPAN_S = 600;
const SPANS = 6;
/** Mean load of the best single deployment over the whole run: its busy hours are above it. */
const LOAD = 0.7;

const RUNS = [
  { model: 'meta-llama/Llama-2-70b-hf', gpus: 8 },
  { model: 'facebook/opt-66b', gpus: 8 },
];

type Policy = 'static' | 'reload' | 'ours' | 'ours, kinds known';

interface Day {
  setup: Setup;
  minutes: number;
  results: Record<Policy, TimelineResult>;
}

function dayOf(of: (typeof RUNS)[number], minutes: number): Day {
  // From 6 o'clock of the fifth day: the load rises, falls and rises again within 800 minutes.
  const fromS = 4 * DAY_S + 6 * HOUR_S;
  const window = { fromS, toS: fromS + minutes * 60, beforeS: 2 * HOUR_S };
  const part = `${minutes} minutes`;
  const setup = setupIn({ ...of, trace: 'servegen', window, part, load: LOAD });
  const past = lately(setup);
  return {
    setup,
    minutes,
    results: {
      static: staticOf(setup),
      reload: run(setup, reload(setup.table, 3, 0.1, past.demand)),
      ours: runOurs(setup),
      'ours, kinds known': runOurs(setup, { judged: setup.kinds }),
    },
  };
}

/** P99 of the requests that arrive in a span, seconds. */
export function spanP99(requests: Setup['requests'], byRequest: Float64Array, fromS: number, toS: number): number {
  const own: number[] = [];
  for (let i = 0; i < requests.count; i++) {
    const at = requests.arrival[i] ?? 0;
    const latencyS = byRequest[i] ?? Number.NaN;
    if (at >= fromS && at < toS && !Number.isNaN(latencyS)) own.push(latencyS);
  }
  own.sort((a, b) => a - b);
  return own[Math.max(0, Math.ceil(0.99 * own.length) - 1)] ?? Number.NaN;
}

const geometric = (values: readonly number[]): number =>
  Math.exp(values.reduce((sum, one) => sum + Math.log(one), 0) / Math.max(1, values.length));

export function dayClaims({ quick }: RunOptions): Section {
  const minutes = quick ? MINUTES.quick : MINUTES.whole;
  const days = (quick ? RUNS.slice(0, 1) : RUNS).map((one) => dayOf(one, minutes));
  const over = (name: Policy) => days.map(({ results }) => results[name].latency.p99 / results.ours.latency.p99);
  const spans = days.flatMap(({ setup, results }) =>
    Array.from({ length: SPANS }, (_, i) => {
      const fromS = (i * (minutes * 60 - SPAN_S)) / (SPANS - 1);
      const p99 = (name: Policy) => spanP99(setup.requests, results[name].byRequest, fromS, fromS + SPAN_S);
      return {
        name: `${setup.name}, P${i + 1}`,
        staticS: p99('static'),
        oursS: p99('ours'),
        knownS: p99('ours, kinds known'),
      };
    }),
  );
  const ofSpans = spans.map(({ staticS, oursS }) => staticS / oursS);
  const lost = days.flatMap(({ results }) => Object.values(results)).reduce((sum, one) => sum + one.unanswered, 0);
  const why = 'in the quick run ours begins with the deployment of static and does not switch, with true kinds neither';
  return {
    title: `One static deployment for ${minutes} minutes (Figures 9 and 10): ${days.length} runs of ServeGen`,
    rows: [
      row('requests without an answer, all runs', '', lost, { band: [0, 0] }),
      row('P99 of static over ours, whole run, geometric mean', '×', geometric(over('static')), {
        paper: 1.5,
        band: [1.5, 100],
        miss: { band: [0.8, 1.5], reason: why },
      }),
      row('P99 of static over ours, spans P1 to P6, largest', '×', Math.max(...ofSpans), {
        paper: 2.7,
        band: [2, 100],
        miss: { band: [0.8, 2], reason: why },
      }),
      row('P99 of static over ours, spans P1 to P6, geometric mean', '×', geometric(ofSpans)),
      row('P99 of reload over ours, whole run, geometric mean', '×', geometric(over('reload'))),
      row('P99 of ours with judged kinds over ours with the true kinds', '×', 1 / geometric(over('ours, kinds known'))),
      row(
        'switches of ours in a run, mean',
        '',
        days.reduce((sum, { results }) => sum + results.ours.switches, 0) / days.length,
      ),
    ],
    verdicts: [
      {
        claim: 'P99 over a whole trace is 1.5 × better than that of one static deployment',
        verdict: geometric(over('static')) >= 1.5 ? 'reproduced' : 'refuted',
        reason: `${geometric(over('static')).toFixed(2)} ×: ${why}`,
      },
    ],
    text: [
      table(
        ['run', 'policy', 'P99', 'mean', 'TTFT P99', 'TBT P99 ms', 'req/s', 'switches', 'begins with'],
        days.flatMap(({ setup, results }) =>
          (Object.keys(results) as Policy[]).map((name) => {
            const { latency, ttft, tbt, requestsPerS, switches, slots } = results[name];
            const times = [latency.p99, latency.mean, ttft.p99].map((s) => s.toFixed(1));
            const plan = planText(slots[0]?.plan ?? []);
            return [setup.name, name, ...times, (tbt.p99 * 1e3).toFixed(0), requestsPerS.toFixed(1), switches, plan];
          }),
        ),
      ),
      table(
        ['span', 'static', 'ours', 'static over ours', 'ours, kinds known'],
        spans.map(({ name, staticS, oursS, knownS }) => [
          name,
          staticS.toFixed(1),
          oursS.toFixed(1),
          (staticS / oursS).toFixed(2),
          knownS.toFixed(1),
        ]),
      ),
      ...days.map(({ setup, results }) => timeline(setup, results.ours)),
    ].join('\n\n'),
  };
}

/** Rows of the table of a timeline. */
const TIMELINE_ROWS = 20;

/** Demand by kind and deployment over time (Figures 2 and 8). */
function timeline(setup: Setup, { slots }: TimelineResult): string {
  const each = Math.max(1, Math.ceil(slots.length / TIMELINE_ROWS));
  const names = setup.table.kinds.map(({ name }) => name);
  const rows = slots
    .filter((_, i) => i % each === 0)
    .map(({ slot, plan, demand, p99S }) => [
      slot,
      ...demand.map((one) => (one / SLOT_S).toFixed(1)),
      planText(plan),
      p99S.toFixed(1),
    ]);
  return table(['minute', ...names, `deployment of ours, ${setup.name}`, 'P99'], rows);
}
