/** Requests/s that each way to serve completes if more arrive than any can serve (Figure 11). */
import * as z from 'zod';
import { planText } from '../../orchestration/deployment-plan.ts';
import { reload } from '../../orchestration/orchestrators/reload.ts';
import type { TimelineResult } from '../../orchestration/timeline.ts';
import { lately, run, runOurs, staticOf } from './policies.ts';
import { type Setup, type SetupOf, setupOf } from './setups.ts';

/** Load of the best single deployment: more than any can serve. */
export const LOAD = 1.5;
const RUNS: readonly SaturatedOf[] = [
  { model: 'facebook/opt-30b', gpus: 8, trace: 'azure', span: 2 },
  { model: 'facebook/opt-30b', gpus: 8, trace: 'servegen', span: 2 },
  { model: 'meta-llama/Llama-2-70b-hf', gpus: 8, trace: 'azure', span: 4 },
  { model: 'meta-llama/Llama-2-70b-hf', gpus: 8, trace: 'servegen', span: 4 },
];
const QUICK = 2;

export type SaturatedOf = Pick<SetupOf, 'model' | 'gpus' | 'trace' | 'span'>;

export const saturatedRuns = (quick: boolean): readonly SaturatedOf[] => (quick ? RUNS.slice(0, QUICK) : RUNS);

const SATURATED_POLICIES = ['static', 'reload', 'ours', 'ours, kinds known'] as const;
export type SaturatedPolicy = (typeof SATURATED_POLICIES)[number];

export const saturatedSchema = z.object({
  name: z.string(),
  results: z.record(
    z.enum(SATURATED_POLICIES),
    z.object({
      requestsPerS: z.number(),
      /** Its first deployment. */
      deployment: z.string(),
    }),
  ),
});
export type Saturated = z.infer<typeof saturatedSchema>;

export function saturated(of: SaturatedOf): Saturated {
  const setup = setupOf({ ...of, load: LOAD });
  const figures = (result: TimelineResult) => ({
    requestsPerS: throughput(setup, result),
    deployment: planText(result.slots[0]?.plan ?? []),
  });
  return {
    name: setup.name,
    results: {
      static: figures(staticOf(setup)),
      reload: figures(run(setup, reload(setup.table, 3, 0.1, lately(setup).demand))),
      ours: figures(runOurs(setup)),
      'ours, kinds known': figures(runOurs(setup, { judged: setup.kinds })),
    },
  };
}

/** Requests/s from the first arrival until nine of ten requests have ended: the last ones run in emptying batches. */
function throughput({ requests }: Setup, { byRequest }: Pick<TimelineResult, 'byRequest'>): number {
  const ends = [...byRequest].flatMap((latencyS, i) =>
    Number.isNaN(latencyS) ? [] : [(requests.arrival[i] ?? 0) + latencyS],
  );
  ends.sort((a, b) => a - b);
  const counted = Math.max(1, Math.floor(0.9 * ends.length));
  return counted / Math.max(1e-9, (ends[counted - 1] ?? 0) - (requests.arrival[0] ?? 0));
}
