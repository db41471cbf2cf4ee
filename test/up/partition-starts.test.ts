/** Partitions that start a waiting job earlier. */
import { expect, it } from 'vitest';
import { earlierPartitions, parseStarts, startsScript } from '../../up/job/partition-starts.ts';
import type { GpuPool } from '../../up/site/site.ts';

const NOW = Date.parse('2026-11-27T10:00:00Z');
const pool = (partition: string, gpu: string | undefined, gpusPerNode: number): GpuPool => ({
  partition,
  isDefault: false,
  gpu,
  gpusPerNode,
  openNodes: 0,
  longestMs: undefined,
  address: 'n1',
});
const POOLS = [pool('gpu', 'a100', 4), pool('big', 'h100', 8), pool('old', undefined, 2), pool('big', 'a100', 4)];
const JOB = {
  partition: 'gpu',
  pools: POOLS,
  wish: { partition: undefined, gpu: undefined, gpus: 2, time: undefined },
  account: 'ml',
  time: '240',
};

it('other partitions with enough GPUs of the kind are asked for', () => {
  const script = startsScript(JOB) ?? '';
  expect(script.split('\n')).toEqual([
    'export TZ=UTC',
    expect.stringContaining('--partition=big --gres=gpu:h100:2 --time=240 --account=ml --wrap=true'),
    expect.stringContaining('--partition=old --gres=gpu:2 '),
    expect.stringContaining('--partition=big --gres=gpu:a100:2 '),
  ]);
  expect(startsScript({ ...JOB, wish: { ...JOB.wish, gpu: 'H100' } })?.match(/sbatch/g)).toHaveLength(1);
  expect(startsScript({ ...JOB, wish: { ...JOB.wish, gpus: 16 } })).toBeUndefined();
  expect(startsScript({ ...JOB, account: "x'; touch y" })).toContain(`'--account=x'\\''; touch y'`);
});

it('the answers are read, and a partition that refuses the job is left out', () => {
  const out = [
    'starts=big|sbatch: Job 9 to start at 2026-11-27T10:00:20 using 1 processors on nodes n3 in partition big',
    'starts=old|allocation failure: Requested node configuration is not available',
    'starts=big|sbatch: Job 10 to start at 2026-11-27T12:30:00 using 1 processors on nodes n1 in partition big',
    'starts=far|sbatch: Job 11 to start at 2026-11-27T12:30:00 a processor on nodes n1 in partition far',
  ].join('\n');
  const found = parseStarts(out);
  expect(found).toHaveLength(3);
  expect(earlierPartitions(found, Date.parse('2026-11-27T14:00:00Z'), NOW)).toBe('big (now), far (in about 3 h)');
  expect(earlierPartitions(found, Date.parse('2026-11-27T12:35:00Z'), NOW)).toBe('big (now)');
  expect(earlierPartitions(found, Date.parse('2026-11-27T10:05:00Z'), NOW)).toBe('');
  expect(earlierPartitions(found, undefined, NOW)).toContain('far');
  expect(earlierPartitions(parseStarts(''), undefined, NOW)).toBe('');
});
