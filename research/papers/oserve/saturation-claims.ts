/** Requests/s that each way to serve completes if more arrive than any can serve (Figure 11). */
import { table } from '../../../scheduler/validate/text-table.ts';
import { planText } from '../../orchestration/deployment-plan.ts';
import { reload } from '../../orchestration/orchestrators/reload.ts';
import type { TimelineResult } from '../../orchestration/timeline.ts';
import { row } from '../rows.ts';
import { lately, run, runOurs, staticOf } from './policies.ts';
import type { RunOptions, Section } from './section.ts';
import { type Setup, setupOf, type TraceName } from './setups.ts';

/** Load of the best single deployment: more than any can serve. */
const LOAD = 1.5;
const RUNS: readonly { model: string; gpus: number; trace: TraceName; span: number }[] = [
  { model: 'facebook/opt-30b', gpus: 8, trace: 'azure', span: 2 },
  { model: 'facebook/opt-30b', gpus: 8, trace: 'servegen', span: 2 },
  { model: 'meta-llama/Llama-2-70b-hf', gpus: 8, trace: 'azure', span: 4 },
  { model: 'meta-llama/Llama-2-70b-hf', gpus: 8, trace: 'servegen', span: 4 },
];
const QUICK = 2;

type Policy = 'static' | 'reload' | 'ours' | 'ours, kinds known';

interface Saturated {
  setup: Setup;
  results: Record<Policy, TimelineResult>;
}

function saturated(of: (typeof RUNS)[number]): Saturated {
  const setup = setupOf({ ...of, load: LOAD });
  return {
    setup,
    results: {
      static: staticOf(setup),
      reload: run(setup, reload(setup.table, 3, 0.1, lately(setup).demand)),
      ours: runOurs(setup),
      'ours, kinds known': runOurs(setup, { judged: setup.kinds }),
    },
  };
}

/** Requests/s from the first arrival until nine of ten requests have ended: the last ones run in emptying batches. */
export function throughput({ requests }: Setup, { byRequest }: Pick<TimelineResult, 'byRequest'>): number {
  const ends = [...byRequest].flatMap((latencyS, i) =>
    Number.isNaN(latencyS) ? [] : [(requests.arrival[i] ?? 0) + latencyS],
  );
  ends.sort((a, b) => a - b);
  const counted = Math.max(1, Math.floor(0.9 * ends.length));
  return counted / Math.max(1e-9, (ends[counted - 1] ?? 0) - (requests.arrival[0] ?? 0));
}

export function saturationClaims({ quick }: RunOptions): Section {
  const all = (quick ? RUNS.slice(0, QUICK) : RUNS).map(saturated);
  const gain = (name: Policy, own: Policy) =>
    Math.exp(
      all.reduce(
        (sum, { setup, results }) => sum + Math.log(throughput(setup, results[own]) / throughput(setup, results[name])),
        0,
      ) / all.length,
    );
  const why =
    'in three of the four runs ours has the deployment of static, and in the other one unequal replicas have 3 % more capacity';
  return {
    title: `Throughput under saturation (Figure 11): ${all.length} runs at ${LOAD} times what a deployment can serve`,
    rows: [
      row('throughput of ours over static', '×', gain('static', 'ours'), {
        paper: 1.5,
        band: [1.5, 10],
        miss: { band: [0.8, 1.5], reason: why },
      }),
      row('throughput of ours over static, kinds known', '×', gain('static', 'ours, kinds known')),
      row('throughput of ours over reload', '×', gain('reload', 'ours')),
    ],
    verdicts: [
      {
        claim: 'throughput is 1.5 × that of static',
        verdict: gain('static', 'ours') >= 1.5 ? 'reproduced' : 'refuted',
        reason: `${gain('static', 'ours').toFixed(2)} ×: ${why}`,
      },
    ],
    text: table(
      ['run', 'policy', 'requests/s', 'begins with'],
      all.flatMap(({ setup, results }) =>
        Object.entries(results).map(([name, result]) => [
          setup.name,
          name,
          throughput(setup, result).toFixed(1),
          planText(result.slots[0]?.plan ?? []),
        ]),
      ),
    ),
  };
}
