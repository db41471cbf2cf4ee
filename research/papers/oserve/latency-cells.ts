/** The runs for Figures 9 to 12, 17 and 18: each model, size, trace and span under every policy. */
import * as z from 'zod';
import { planText } from '../../orchestration/deployment-plan.ts';
import type { TimelineResult } from '../../orchestration/timeline.ts';
import { POLICIES, runPolicies } from './policies.ts';
import { type SetupOf, setupOf } from './setups.ts';

/** Figures of one run; times in seconds. */
const figures = z.object({
  mean: z.number(),
  p90: z.number(),
  /** P95, P96, P97, P98, P99. */
  tail: z.array(z.number()).length(5),
  ttftP99: z.number(),
  tbtMean: z.number(),
  /** Of the mean seconds between tokens of each response. */
  tbtP99: z.number(),
  requestsPerS: z.number(),
  unanswered: z.number(),
  switches: z.number(),
  /** Its first deployment. */
  deployment: z.string(),
});
export const cellSchema = z.object({
  name: z.string(),
  model: z.string(),
  gpus: z.number(),
  trace: z.enum(['azure', 'servegen']),
  span: z.number(),
  requests: z.number(),
  results: z.record(z.enum(POLICIES), figures),
});
type Figures = z.infer<typeof figures>;
export type Cell = z.infer<typeof cellSchema>;

/** The paper's models and GPUs (§6.1; 32 GPUs in Figure 18), the common sizes first. */
const MODELS: [model: string, gpus: number][] = [
  ['facebook/opt-30b', 8],
  ['facebook/opt-66b', 8],
  ['huggyllama/llama-30b', 8],
  ['meta-llama/Llama-2-70b-hf', 8],
  ['facebook/opt-30b', 16],
  ['facebook/opt-66b', 16],
  ['huggyllama/llama-30b', 16],
  ['meta-llama/Llama-2-70b-hf', 16],
  ['meta-llama/Llama-2-70b-hf', 32],
];
const SPANS = [0, 1, 2, 3, 4, 5];
const QUICK_SPANS = [2, 4];

export type CellOf = Required<Pick<SetupOf, 'model' | 'gpus' | 'trace' | 'span'>>;

/** `only`: restricts to models and GPUs with this text in their name, such as `opt-30b 16`. */
export function cellsOf({ quick, only = '' }: { quick: boolean; only?: string | undefined }): CellOf[] {
  const models = (quick ? MODELS.slice(0, 1) : MODELS).filter(([name, gpus]) => `${name} ${gpus}`.includes(only));
  return (['azure', 'servegen'] as const).flatMap((trace) =>
    (quick ? QUICK_SPANS : SPANS).flatMap((span) => models.map(([model, gpus]) => ({ model, gpus, trace, span }))),
  );
}

export function cellOf(of: CellOf): Cell {
  const setup = setupOf(of);
  const results = runPolicies(setup);
  const own = Object.fromEntries(POLICIES.map((name) => [name, figuresOf(results[name])]));
  return cellSchema.parse({ ...of, name: setup.name, requests: setup.requests.count, results: own });
}

const figuresOf = (result: TimelineResult): Figures => ({
  mean: result.latency.mean,
  p90: result.latency.p90,
  tail: result.tail,
  ttftP99: result.ttft.p99,
  tbtMean: result.tbt.mean,
  tbtP99: result.tbt.p99,
  requestsPerS: result.requestsPerS,
  unanswered: result.unanswered,
  switches: result.switches,
  deployment: planText(result.slots[0]?.plan ?? []),
});
