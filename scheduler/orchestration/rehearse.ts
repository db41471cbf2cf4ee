import type { EngineLimits } from '../serving/limits.ts';
import { exponential, seeded } from '../serving/random.ts';
import { type Requests, requestsFromRows } from '../serving/requests.ts';
import { unchanged } from './orchestrators/unchanged.ts';
import type { RateTable } from './rates.ts';
import { type Dispatch, runTimeline } from './timeline.ts';
import type { DeploymentPlan } from './types.ts';

/** A power mean of latencies: the goal is the tail, but one request in a hundred of a short rehearsal is chance. */
const TAIL_POWER = 4;
/** Requests of a first rehearsal at most: a few ten milliseconds of simulation. */
export const SHORT_REQUESTS = 8000;
/**
 * Of the rehearsal that decides. At 400 requests/s the first one ends after 20 s, in which the queue of a plan that falls behind by a tenth
 * is still short.
 */
export const LONG_REQUESTS = 100_000;
/** Bytes/s of keys and values; nothing moves in a rehearsal. */
const KV_BYTES_PER_S = 25e9;

/**
 * Requests of a forecast: Poisson arrivals of each kind, with lengths of its examples, for `seconds` or until there are `most`. Every plan is
 * rehearsed on the same ones.
 */
export function forecastRequests(
  table: RateTable,
  demand: readonly number[],
  seconds: number,
  seed: number,
  most = SHORT_REQUESTS,
): { requests: Requests; kinds: Int32Array } {
  const total = demand.reduce((sum, one) => sum + one, 0);
  const extent = Math.min(seconds, most / Math.max(total, 1e-9));
  const rows: [number, number, number, number][] = [];
  for (const [j, rate] of demand.entries()) {
    if (!(rate > 0)) continue;
    const random = seeded(seed * 31 + j);
    const examples = table.kinds[j]?.examples ?? [];
    for (let now = exponential(random, 1 / rate); now < extent; now += exponential(random, 1 / rate)) {
      const { input, output } = examples[Math.floor(random() * examples.length)] ?? { input: 1, output: 1 };
      rows.push([now, input, output, j]);
    }
  }
  rows.sort((a, b) => a[0] - b[0]);
  return {
    requests: requestsFromRows(rows.map(([at, input, output]) => [at, input, output] as const)),
    kinds: Int32Array.from(rows, ([, , , kind]) => kind),
  };
}

/** Seconds of an answer, weighted towards the slow ones, if this plan served the forecast. */
export function rehearse(
  table: RateTable,
  limits: EngineLimits,
  { plan, dispatch }: { plan: DeploymentPlan; dispatch: Dispatch },
  { requests, kinds }: { requests: Requests; kinds: Int32Array },
): number {
  if (requests.count === 0) return 0;
  const { latencies, unanswered } = runTimeline({
    table,
    limits,
    requests,
    judged: kinds,
    slotS: 1e9,
    orchestrator: unchanged('rehearsal', plan, dispatch),
    kvBytesPerS: KV_BYTES_PER_S,
  });
  if (unanswered > 0) return Number.POSITIVE_INFINITY;
  const sum = latencies.reduce((all, latency) => all + latency ** TAIL_POWER, 0);
  return (sum / latencies.length) ** (1 / TAIL_POWER);
}
