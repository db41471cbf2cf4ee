/** Chooses the partition in which the model's job runs. */
import { timeLimitMs } from '../../node/batch-systems/time-limit.ts';
import { gpuClass } from '../../shared/hardware/gpu-classes.ts';
import { UpError } from '../up-error.ts';
import type { GpuPool, LoginNode } from './site.ts';

export interface PoolWish {
  partition: string | undefined;
  /** Kind of GPU: `a100`, `H100`. */
  gpu: string | undefined;
  gpus: number;
  /** Time limit in Slurm's form. */
  time: string | undefined;
}

/** Without --time a job asks for this, or for the partition's limit if that is shorter. */
const TIME_DEFAULT_MS = 4 * 3_600_000;

export interface ChosenPool {
  pool: GpuPool;
  /** Time limit in Slurm's form. */
  time: string;
}

/**
 * Prefers partitions with nodes that start jobs, then the default partition, then the one with the most such nodes.
 * @throws UpError if none fits
 */
export function choosePool(site: Pick<LoginNode, 'host' | 'partitions' | 'pools'>, wish: PoolWish): ChosenPool {
  const { host, partitions, pools } = site;
  if (wish.partition !== undefined && !partitions.includes(wish.partition))
    throw new UpError(`${host} has no partition ${wish.partition}.`, `Its partitions are ${listed(partitions)}.`);
  const inPartition = pools.filter(({ partition }) => wish.partition === undefined || partition === wish.partition);
  if (inPartition.length === 0)
    throw new UpError(
      wish.partition === undefined
        ? `No partition of ${host} has GPUs that Slurm shows: ${listed(partitions)}.`
        : `The partition ${wish.partition} has no GPUs that Slurm shows.`,
      pools.length > 0
        ? `Partitions with GPUs are ${namesOf(pools)}: give one with --partition.`
        : 'Ask your site for the name of its GPU cluster, and give its login node with --host.',
    );
  const ofKind = inPartition.filter(({ gpu }) => wish.gpu === undefined || gpuClass(gpu ?? '') === gpuClass(wish.gpu));
  if (ofKind.length === 0)
    throw new UpError(
      `${host} has no ${wish.gpu} there.`,
      `Its GPUs are ${listed(inPartition.map(({ gpu = 'unnamed' }) => gpu))}.`,
    );
  const largeEnough = ofKind.filter(({ gpusPerNode }) => gpusPerNode >= wish.gpus);
  if (largeEnough.length === 0)
    throw new UpError(
      `No node of ${host} has ${wish.gpus} such GPUs.`,
      `The largest has ${Math.max(...ofKind.map(({ gpusPerNode }) => gpusPerNode))}: give fewer with --gpus.`,
    );
  const [pool] = largeEnough.toSorted(
    (a, b) =>
      Number(b.openNodes > 0) - Number(a.openNodes > 0) ||
      Number(b.isDefault) - Number(a.isDefault) ||
      b.openNodes - a.openNodes,
  );
  if (pool === undefined) throw new Error('a list that is not empty has no first element');
  return { pool, time: timeOf(pool, wish) };
}

function timeOf({ partition, longestMs = Number.POSITIVE_INFINITY }: GpuPool, { time }: PoolWish): string {
  if (time === undefined) return String(Math.floor(Math.min(TIME_DEFAULT_MS, longestMs) / 60_000));
  const wanted = timeLimitMs(time);
  if (wanted === undefined)
    throw new UpError(`--time ${time} is not a time limit.`, 'Write it as 04:00:00 or 1-12:00:00.');
  if (wanted <= longestMs) return time;
  throw new UpError(
    `The partition ${partition} allows at most ${Math.floor(longestMs / 60_000)} minutes.`,
    `Give a shorter --time, or another --partition.`,
  );
}

const listed = (names: readonly string[]) => [...new Set(names)].join(', ') || 'none';
const namesOf = (pools: readonly GpuPool[]) => listed(pools.map(({ partition }) => partition));
