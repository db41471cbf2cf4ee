/** Agents in real Slurm jobs of an ordinary user, seen by the client: a second replica outside Slurm keeps serving. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { load, stream } from '../support/load.ts';
import { endAll } from '../support/processes.ts';
import { Jobs, PREEMPTING } from './jobs.ts';

let jobs: Jobs;

beforeEach(async () => {
  jobs = await Jobs.open();
});
afterEach(endAll);

it('sbatch → tokens: an ordinary user with no home serves from a job that accepts no connection', async () => {
  await jobs.house.agents[0]?.stop();
  const job = await jobs.cluster.submit({
    sbatch: ['--gres=gpu:a100:2', '--cpus-per-task=4', '--time=10', '-w n1'],
    script: await jobs.line('exec'),
  });
  const node = await jobs.nodeOf(job);
  const result = await stream(jobs.house, { tokens: 10 });
  expect(result).toMatchObject({
    status: 200,
    done: true,
    words: 'This is a stand-in engine and not a language model:',
  });
  expect(node).toMatchObject({
    provider: 'hpc',
    cluster: 'alps',
    tier: 'volatile',
    job: { id: job.id, partition: 'normal' },
  });
  expect(node.hardware.gpus.map((gpu) => gpu.class)).toEqual(
    ['A100-80', 'A100-80'].map(() => expect.stringMatching(/^A100/)),
  );
  expect(node.hardware.gpus[0]?.vram_mib).toBe(81_920);
  const endsIn = Date.parse(node.job?.ends_at ?? '') - Date.now();
  expect(endsIn).toBeGreaterThan(8 * 60_000);
  expect(endsIn).toBeLessThan(11 * 60_000);
});

it('a job is asked to drain by SIGUSR1: the stream under way is finished first', async () => {
  const job = await jobs.cluster.submit({ sbatch: ['-w n2'], script: await jobs.line('exec') });
  const { session } = await jobs.nodeOf(job);
  const streaming = await jobs.streamFromJob(160);
  job.cancel('-b', '-s', 'USR1');
  await jobs.notRouted(session, 2_000);
  expect(await streaming.result).toMatchObject({ done: true, error: undefined });
  await job.reaches(['COMPLETED', 'FAILED'], 30_000);
});

it('a job that is preempted under srun is drained within the grace, requeued, and back as a new session of the same job', async () => {
  // A job that exits within the grace period has ended. To be requeued, the script must still run when the grace period
  // is over.
  const script = `${await jobs.line('srun')}\nsleep 120`;
  const job = await jobs.cluster.submit({ sbatch: ['--partition=preempt', '-w n3', '--gres=gpu:h100:2'], script });
  const first = await jobs.nodeOf(job);
  expect(first.job?.partition).toBe('preempt');
  const traffic = load(jobs.house, 4);
  const winner = await jobs.cluster.submit(PREEMPTING);
  await jobs.notRouted(first.session, 40_000);
  await winner.reaches(['RUNNING', 'COMPLETED'], 60_000);
  expect(await jobs.causeOf(first.session)).toBe('preempted');
  const second = await jobs.nodeOf(job, 120_000, first.session);
  expect(second.session).not.toBe(first.session);
  expect(job.field('Restarts')).toBe('1');
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
});
