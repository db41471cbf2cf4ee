/** When the job of a run would start in other partitions, as sbatch(1) --test-only estimates it. */
import { shellQuoted } from '../host/shell-words.ts';
import type { PoolWish } from '../site/choose-pool.ts';
import type { GpuPool } from '../site/site.ts';

/** Partitions that are asked for. Each costs the controller a look at its whole queue. */
const PARTITIONS_MAX = 8;
/** A partition that starts the job only this much earlier is not worth a new place in a queue. */
const EARLIER_MS = 10 * 60_000;
const MINUTE_MS = 60_000;

export interface PartitionStart {
  partition: string;
  /** In ms since 1970. */
  startMs: number;
}

interface TestedJob {
  /** Partition of the job. */
  partition: string | undefined;
  pools: readonly GpuPool[];
  wish: PoolWish;
  account: string | undefined;
  /** Time limit in Slurm's form. */
  time: string;
}

/** Undefined if no other partition has GPUs for the job. */
export function startsScript({ partition, pools, wish, account, time }: TestedJob): string | undefined {
  const fits = pools.filter(
    (pool) =>
      pool.partition !== partition &&
      pool.gpusPerNode >= wish.gpus &&
      (wish.gpu === undefined || pool.gpu?.toLowerCase() === wish.gpu.toLowerCase()),
  );
  const tests = fits.slice(0, PARTITIONS_MAX).map((pool) => {
    const gres = ['gpu', ...(pool.gpu === undefined ? [] : [pool.gpu]), wish.gpus].join(':');
    const options = [
      `--partition=${pool.partition}`,
      `--gres=${gres}`,
      `--time=${time}`,
      ...(account === undefined ? [] : [`--account=${account}`]),
    ].map(shellQuoted);
    const name = shellQuoted(`starts=${pool.partition}|`);
    return `printf '%s%s\\n' ${name} "$(sbatch --test-only ${options.join(' ')} --wrap=true 2>&1 | tail -n 1)"`;
  });
  return tests.length === 0 ? undefined : `export TZ=UTC\n${tests.join('\n')}`;
}

/** Partitions in which Slurm refuses the job are left out. */
export function parseStarts(out: string): PartitionStart[] {
  const found = out.matchAll(/^starts=([^|\n]+)\|.*\bto start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b/gm);
  return [...found].map(([, partition = '', start = '']) => ({ partition, startMs: Date.parse(`${start}Z`) }));
}

/**
 * The partitions that start the job earlier, as a list for people; empty if there is none.
 * @param startMs expected start of the job in its own partition; undefined: unknown
 */
export function earlierPartitions(
  found: readonly PartitionStart[],
  startMs = Number.POSITIVE_INFINITY,
  nowMs = Date.now(),
): string {
  const earliest = new Map<string, number>();
  for (const one of found.toSorted((a, b) => b.startMs - a.startMs)) earliest.set(one.partition, one.startMs);
  return [...earliest]
    .filter(([, at]) => at + EARLIER_MS <= startMs)
    .toSorted(([, a], [, b]) => a - b)
    .map(([partition, at]) => `${partition} (${inText(at - nowMs)})`)
    .join(', ');
}

function inText(ms: number): string {
  const minutes = Math.round(ms / MINUTE_MS);
  if (minutes < 1) return 'now';
  return minutes < 120 ? `in about ${minutes} min` : `in about ${Math.round(minutes / 60)} h`;
}
