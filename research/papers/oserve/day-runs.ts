/** One static deployment for a whole trace, as the paper has it, beside ours. */
import * as z from 'zod';
import { planText } from '../../orchestration/deployment-plan.ts';
import { reload } from '../../orchestration/orchestrators/reload.ts';
import type { TimelineResult } from '../../orchestration/timeline.ts';
import { lately, run, runLivePlanner, runOurs, staticOf } from './policies.ts';
import { type Setup, SLOT_S, setupIn } from './setups.ts';

const DAY_S = 86_400;
const HOUR_S = 3600;
/** Seconds of each of the spans P1 to P6, cut from the run at equal distances. */
const SPAN_S = 600;
const SPANS = 6;
/** Mean load of the best single deployment over the whole run: its busy hours are above it. */
const LOAD = 0.7;

export interface DayOf {
  model: string;
  gpus: number;
  minutes: number;
}

const LLAMA = { model: 'meta-llama/Llama-2-70b-hf', gpus: 8 };
/** The paper's trace has 800 minutes. */
const RUNS: readonly DayOf[] = [
  { ...LLAMA, minutes: 800 },
  { model: 'facebook/opt-66b', gpus: 8, minutes: 800 },
  { ...LLAMA, minutes: 1440 },
];

export const dayRuns = (quick: boolean): readonly DayOf[] => (quick ? [{ ...LLAMA, minutes: 90 }] : RUNS);

const DAY_POLICIES = ['static', 'reload', 'live planner', 'ours', 'ours, kinds known'] as const;
export type DayPolicy = (typeof DAY_POLICIES)[number];

const figuresSchema = z.object({
  /** Seconds. */
  p99: z.number(),
  mean: z.number(),
  ttftP99: z.number(),
  tbtP99: z.number(),
  requestsPerS: z.number(),
  unanswered: z.number(),
  switches: z.number(),
  /** Its first deployment. */
  deployment: z.string(),
  /** P99 of the requests that arrive in each of the spans P1 to P6, seconds. */
  spans: z.array(z.number()).length(SPANS),
});

export const daySchema = z.object({
  name: z.string(),
  minutes: z.number(),
  kinds: z.array(z.string()),
  results: z.record(z.enum(DAY_POLICIES), figuresSchema),
  /** Minutes of ours: requests/s by kind, the deployment, and P99 in seconds. */
  course: z.array(
    z.object({ minute: z.number(), demand: z.array(z.number()), deployment: z.string(), p99: z.number() }),
  ),
});
export type Day = z.infer<typeof daySchema>;

export function dayOf({ minutes, ...of }: DayOf): Day {
  // From 6 o'clock of the fifth day: the load rises, falls and rises again within 800 minutes.
  const fromS = 4 * DAY_S + 6 * HOUR_S;
  const window = { fromS, toS: fromS + minutes * 60, beforeS: 2 * HOUR_S };
  const setup = setupIn({ ...of, trace: 'servegen', window, part: `${minutes} minutes`, load: LOAD });
  const figures = ({ latency, ttft, tbt, requestsPerS, unanswered, switches, slots, byRequest }: TimelineResult) => ({
    p99: latency.p99,
    mean: latency.mean,
    ttftP99: ttft.p99,
    tbtP99: tbt.p99,
    requestsPerS,
    unanswered,
    switches,
    deployment: planText(slots[0]?.plan ?? []),
    spans: Array.from({ length: SPANS }, (_, i) => {
      const startS = (i * (minutes * 60 - SPAN_S)) / (SPANS - 1);
      return spanP99(setup.requests, byRequest, startS, startS + SPAN_S);
    }),
  });
  const ours = runOurs(setup);
  return {
    name: setup.name,
    minutes,
    kinds: setup.table.kinds.map(({ name }) => name),
    results: {
      static: figures(staticOf(setup)),
      reload: figures(run(setup, reload(setup.table, 3, 0.1, lately(setup).demand))),
      'live planner': figures(runLivePlanner(setup)),
      ours: figures(ours),
      'ours, kinds known': figures(runOurs(setup, { judged: setup.kinds })),
    },
    course: ours.slots.map(({ slot, demand, plan, p99S }) => ({
      minute: slot,
      demand: demand.map((one) => one / SLOT_S),
      deployment: planText(plan),
      p99: p99S,
    })),
  };
}

/** P99 of the requests that arrive in a span, seconds. */
function spanP99(requests: Setup['requests'], byRequest: Float64Array, fromS: number, toS: number): number {
  const own: number[] = [];
  for (let i = 0; i < requests.count; i++) {
    const at = requests.arrival[i] ?? 0;
    const latencyS = byRequest[i] ?? Number.NaN;
    if (at >= fromS && at < toS && !Number.isNaN(latencyS)) own.push(latencyS);
  }
  own.sort((a, b) => a - b);
  return own[Math.max(0, Math.ceil(0.99 * own.length) - 1)] ?? Number.NaN;
}
