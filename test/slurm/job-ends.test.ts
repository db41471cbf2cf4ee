/**
 * Other ways in which a Slurm job starts, shares a machine and ends, as its clients see it; jobs.test.ts has the short
 * form.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { load } from '../support/load.ts';
import { endAll } from '../support/processes.ts';
import { Jobs, PREEMPTING } from './jobs.ts';

let jobs: Jobs;

beforeEach(async () => {
  jobs = await Jobs.open();
});
afterEach(endAll);

it('two jobs on one machine each show their own GPUs only', async () => {
  const first = await jobs.cluster.submit({ sbatch: ['--gres=gpu:a100:3', '-w n1'], script: await jobs.line('exec') });
  const second = await jobs.cluster.submit({ sbatch: ['--gres=gpu:a100:1', '-w n1'], script: await jobs.line('exec') });
  expect((await jobs.nodeOf(first)).hardware.gpus).toHaveLength(3);
  expect((await jobs.nodeOf(second)).hardware.gpus).toHaveLength(1);
});

it('a job over two machines is one session with the GPUs of the whole allocation', async () => {
  const script = await jobs.line('srun --ntasks-per-node=1', '--span-nodes');
  const job = await jobs.cluster.submit({
    sbatch: ['-N2', '--ntasks-per-node=1', '--gres=gpu:a100:4', '-w n1,n2'],
    script,
  });
  const node = await jobs.nodeOf(job);
  expect(node.hardware.gpus).toHaveLength(8);
  const mine = (await jobs.house.gateway.nodes()).filter((known) => known.job?.id === job.id);
  expect(mine).toHaveLength(1);
});

describe('the job ends', () => {
  it('by scancel: no request fails, a stream under way ends whole or says that it broke', async () => {
    const job = await jobs.cluster.submit({ sbatch: ['--gres=gpu:a100:1', '-w n1'], script: await jobs.line('exec') });
    const { session } = await jobs.nodeOf(job);
    const traffic = load(jobs.house, 4);
    const streaming = await jobs.streamFromJob(600);
    job.cancel();
    await jobs.notRouted(session, 2_000);
    const result = await streaming.result;
    expect(result.done || result.error !== undefined, 'a broken stream must not look whole').toBe(true);
    expect(result.done && result.error !== undefined).toBe(false);
    await job.reaches(['CANCELLED'], 20_000);
    expect(await jobs.causeOf(session)).toBe('cancelled');
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
    expect(traffic.served).toBeGreaterThan(0);
  });

  it('by its time limit, which nobody announced: no request fails', async () => {
    const job = await jobs.cluster.submit({ sbatch: ['--time=10', '-w n2'], script: await jobs.line('exec') });
    const { session } = await jobs.nodeOf(job);
    const traffic = load(jobs.house, 4);
    jobs.cluster.command('scontrol', 'update', `jobid=${job.id}`, 'endtime=now+5seconds');
    await job.reaches(['TIMEOUT'], 90_000);
    await jobs.notRouted(session, 1_000);
    expect(await jobs.causeOf(session)).toBe('time-limit');
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
  });

  it('when its time is nearly up, by itself: drained before the limit, with the stream under way finished', async () => {
    const job = await jobs.cluster.submit({
      sbatch: ['--time=2', '-w n2'],
      script: await jobs.line('exec', '--drain-before 100s'),
    });
    const { session } = await jobs.nodeOf(job, 18_000);
    const streaming = await jobs.streamFromJob(500);
    await jobs.notRouted(session, 40_000);
    expect(job.field('JobState')).toBe('RUNNING');
    expect(await streaming.result).toMatchObject({ done: true, error: undefined });
    await job.reaches(['COMPLETED', 'FAILED'], 30_000);
  });
});

describe('the job is preempted', () => {
  it('without srun, told only seconds before the end: no request fails', async () => {
    const job = await jobs.cluster.submit({
      sbatch: ['--partition=preempt-cancel', '-w n3', '--gres=gpu:h100:2'],
      script: await jobs.line('exec'),
    });
    const { session } = await jobs.nodeOf(job);
    const traffic = load(jobs.house, 4);
    await jobs.cluster.submit(PREEMPTING);
    await jobs.notRouted(session, 60_000);
    await job.reaches(['PREEMPTED'], 30_000);
    expect(await jobs.causeOf(session)).toBe('preempted');
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
  });
});
