import { seededRandom } from '../../../scheduler/simulator/random.ts';
import type { Policy } from '../../contexts/costs.ts';
import { A10, SITE, type SiteGpu, TITAN_X_PASCAL } from '../../contexts/gpus.ts';
import type { Engine, Result, Run, Work, Worker } from '../../contexts/simulate.ts';
import { simulateWorkers } from '../../contexts/simulate.ts';

/** FEVER's claims: 150,000; the last 4,551 of them have no text (paper, §5). */
const WORK: Work = { inferences: 150_000, empty: 4_551 };

/** Batch sizes of pv3 and pv4. */
export const BATCH_SIZES = [1, 100, 1_000, 3_000, 7_500] as const;

/** Ten A10 and ten TITAN X, all connected at the start: pv1 to pv5. */
const POOL: readonly Worker[] = [A10, TITAN_X_PASCAL].flatMap((gpu) =>
  Array.from({ length: 10 }, () => ({ gpu, joinS: 0 })),
);

/** pv5: from 900 s on, one worker is evicted each minute, the A10 first. */
const EVICTION = { fromS: 900, everyS: 60 };
/** Workers connect one after another when the site assigns them. */
const JOIN_EVERY_S = 1;
/** pv6: the most concurrent GPUs; the run's average was 157. pv6_2p: the largest of the five daily runs. */
export const PV6_GPUS = 186;
/** The paper reports 11 to 64 GPUs on average over the five daily runs; the values in between are ours. */
export const DAILY_GPUS = [11, 24, 38, 51, 64] as const;

export function poolRun(policy: Policy, batch: number, seed: number, engine?: Engine): Run {
  return { work: WORK, workers: POOL, policy, batch, seed, ...(engine === undefined ? {} : { engine }) };
}

/** pv0: a plain script on one A10. */
export function alone(seed: number): Run {
  return { work: WORK, workers: [{ gpu: A10, joinS: 0 }], policy: 'pervasive', batch: 100, seed, staged: false };
}

/**
 * pv5s lost two workers at its start; the paper does not specify how. `run`: they never computed. `evictions`: two left
 * in the first minute of the evictions. Neither reaches the paper's count of inferences.
 */
export type LostTwo = 'no' | 'run' | 'evictions';

export function evictedRun(policy: Policy, batch: number, seed: number, lostTwo: LostTwo, engine?: Engine): Run {
  const gone = lostTwo === 'run' ? 2 : 0;
  const workers = POOL.slice(gone).map((worker, i) => {
    const minute = lostTwo === 'evictions' ? Math.max(0, i - 1) : i + gone;
    return { ...worker, leaveS: EVICTION.fromS + minute * EVICTION.everyS };
  });
  return { ...poolRun(policy, batch, seed, engine), workers };
}

export const pv5p = (seed: number): Result => simulateWorkers(evictedRun('partial', 1_000, seed, 'no'));
export const pv5s = (seed: number, lostTwo: LostTwo = 'no'): Result =>
  simulateWorkers(evictedRun('pervasive', 100, seed, lostTwo));

/** `gpus` of the site's GPUs, drawn without replacement, joining one after another. */
export function opportunistic(gpus: number, seed: number, engine?: Engine, everyS = JOIN_EVERY_S): Run {
  const random = seededRandom(seed + 1_000);
  const site: SiteGpu[] = SITE.flatMap((gpu) => Array.from({ length: gpu.count }, () => gpu));
  const workers: Worker[] = [];
  for (let i = 0; i < gpus && site.length > 0; i++) {
    const [gpu] = site.splice(Math.floor(random() * site.length), 1);
    if (gpu !== undefined) workers.push({ gpu, joinS: i * everyS });
  }
  return { ...poolRun('pervasive', 100, seed, engine), workers };
}

/** Mean stay of a worker, until the site takes its GPU back. The paper prints none. */
const STAY_S = 1_800;
/** Seconds until the factory's next job has another GPU. */
const REPLACED_S = 60;
/** Longer than the run of the fewest GPUs. */
const LEAVING_UNTIL_S = 20_000;

/** As `opportunistic`, but each worker is evicted at a random time, and another one follows on the same GPU. */
export function leavingRun(gpus: number, seed: number): Run {
  const run = opportunistic(gpus, seed);
  const random = seededRandom(seed + 2_000);
  const workers = run.workers.flatMap((worker) => {
    const stays: Worker[] = [];
    for (let at = worker.joinS; at < LEAVING_UNTIL_S; ) {
      const leaveS = at - STAY_S * Math.log(1 - random());
      stays.push({ ...worker, joinS: at, leaveS });
      at = leaveS + REPLACED_S;
    }
    return stays;
  });
  return { ...run, workers };
}

/** Seconds between two jobs of a factory with its default of 10 submissions a minute, and with the paper's case, 60. */
export const SUBMITTED_EVERY_S = { default: 6, paper: 1 } as const;
