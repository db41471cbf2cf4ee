/** One static deployment for a whole trace, as the paper has it, beside ours. */
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import * as z from 'zod';
import { planText } from '../../orchestration/deployment-plan.ts';
import { reload } from '../../orchestration/orchestrators/reload.ts';
import type { TimelineResult } from '../../orchestration/timeline.ts';
import { lately, run, runLivePlanner, runOurs, staticOf } from './policies.ts';
import { type Setup, SLOT_S, setupIn } from './setups.ts';
import { secondsOfTrace } from './traces.ts';

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
  /** At most: a file may be shorter. */
  minutes: number;
  /** A trace instead of ServeGen's, and its size: another file of that name is another run. */
  file?: { path: string; bytes: number };
}

const LLAMA = { model: 'meta-llama/Llama-2-70b-hf', gpus: 8 };
/** The paper's trace has 800 minutes. */
const RUNS: readonly DayOf[] = [
  { ...LLAMA, minutes: 800 },
  { model: 'facebook/opt-66b', gpus: 8, minutes: 800 },
  { ...LLAMA, minutes: 1440 },
];

const QUICK_MINUTES = 90;

/** `path`: a trace of Azure, Mooncake, BurstGPT or a gateway. */
export function dayRuns(quick: boolean, path?: string): readonly DayOf[] {
  const runs = quick ? [{ ...LLAMA, minutes: QUICK_MINUTES }] : RUNS;
  if (path === undefined) return runs;
  const file = { path: resolve(path), bytes: statSync(path).size };
  return runs.map((run) => ({ ...run, file }));
}

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
  /** Our minutes: requests/s by kind, the deployment, and P99 in seconds. */
  course: z.array(
    z.object({ minute: z.number(), demand: z.array(z.number()), deployment: z.string(), p99: z.number() }),
  ),
});
export type Day = z.infer<typeof daySchema>;

/** From 6 o'clock of ServeGen's fifth day: the load rises, falls and rises again within 800 minutes. */
const SERVEGEN_FROM_S = 4 * DAY_S + 6 * HOUR_S;
/** Most seconds before a run from which forecasts learn, and their most share of a file. */
const BEFORE_S = 2 * HOUR_S;
const BEFORE_SHARE = 0.2;

function windowOf({ minutes: most, file }: DayOf) {
  if (file === undefined)
    return { fromS: SERVEGEN_FROM_S, toS: SERVEGEN_FROM_S + most * 60, beforeS: BEFORE_S, minutes: most };
  const endS = secondsOfTrace(file.path);
  const beforeS = Math.floor(Math.min(BEFORE_S, endS * BEFORE_SHARE) / SLOT_S) * SLOT_S;
  const minutes = Math.min(most, Math.floor((endS - beforeS) / SLOT_S));
  return { fromS: beforeS, toS: beforeS + minutes * SLOT_S, beforeS, minutes };
}

export function dayOf(of: DayOf): Day {
  const { model, gpus, file } = of;
  const { minutes, ...window } = windowOf(of);
  const trace = file === undefined ? 'servegen' : (`file:${file.path}` as const);
  const setup = setupIn({ model, gpus, trace, window, part: `${minutes} minutes`, load: LOAD });
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
