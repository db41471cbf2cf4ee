/** Agents in real Slurm jobs of an ordinary user, seen from the client's side: a second replica outside Slurm keeps serving. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { RegisteredNode } from '../support/gateway.ts';
import { type House, MODEL } from '../support/house.ts';
import { load, stream } from '../support/load.ts';
import { endAll, eventually } from '../support/processes.ts';
import type { Cluster, Job } from './cluster.ts';
import { openPlace } from './place.ts';

/** Served by the job's engine alone, beside MODEL, which a second replica outside Slurm serves too. */
const ONLY = 'stand-in/in-the-job';

let house: House;
let cluster: Cluster;
let token: string;

beforeEach(async () => {
  ({ house, cluster, token } = await openPlace());
});
afterEach(endAll);

const line = (how: string, flags = '', engineFlags = '') =>
  cluster.agentLine(how, house.gateway.url, token, MODEL, flags, `--model ${ONLY} ${engineFlags}`);

/** The node that a job became; says what the job printed when there is none. */
async function nodeOf(job: Job, withinMs = 30_000, not?: string): Promise<RegisteredNode> {
  try {
    return await eventually(`job ${job.id} serves`, withinMs, async () =>
      (await house.gateway.nodes()).find(
        (node) => node.job?.id === job.id && node.state === 'SERVING' && !node.suspected && node.session !== not,
      ),
    );
  } catch (cause) {
    throw new Error(`${cause instanceof Error ? cause.message : cause}\n--- the job:\n${await job.output()}`, {
      cause,
    });
  }
}

const historySchema = z.object({ data: z.array(z.looseObject({ event: z.string(), cause: z.string().nullable() })) });

/** Why the node left, as the registry wrote it down. */
async function causeOf(session: string): Promise<string | null> {
  return eventually(`${session} has left`, 20_000, async () => {
    const told = await house.gateway.admin('GET', `nodes/history?event=left&session=${session}`);
    return historySchema.parse(told).data[0]?.cause ?? undefined;
  });
}

async function notRouted(session: string, withinMs: number): Promise<void> {
  await eventually(`${session} is out of routing`, withinMs, async () => {
    const node = (await house.gateway.nodes()).find((known) => known.session === session);
    return node === undefined || node.state !== 'SERVING' || node.suspected ? true : undefined;
  });
}

/** Reads a slow stream from the job: `only` is served there and nowhere else. */
async function streamFromJob(tokens: number) {
  let words = 0;
  const result = stream(house, { tokens, tokensPerSecond: 20 }, { model: ONLY }, (n) => {
    words = n;
  });
  await Promise.race([
    eventually('the stream flows', 15_000, () => (words > 5 ? true : undefined)),
    result.then((early) => {
      throw new Error(`the stream ended early: ${JSON.stringify(early)}`);
    }),
  ]);
  return { result };
}

it('sbatch → tokens: an ordinary user with no home serves from a job that accepts no connection', async () => {
  await house.agents[0]?.stop();
  const job = await cluster.submit({
    sbatch: ['--gres=gpu:a100:2', '--cpus-per-task=4', '--time=10', '-w n1'],
    script: await line('exec'),
  });
  const node = await nodeOf(job);
  const result = await stream(house, { tokens: 10 });
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

it('two jobs on one machine each show their own GPUs only', async () => {
  const first = await cluster.submit({ sbatch: ['--gres=gpu:a100:3', '-w n1'], script: await line('exec') });
  const second = await cluster.submit({ sbatch: ['--gres=gpu:a100:1', '-w n1'], script: await line('exec') });
  expect((await nodeOf(first)).hardware.gpus).toHaveLength(3);
  expect((await nodeOf(second)).hardware.gpus).toHaveLength(1);
});

it('a job over two machines is one session with the GPUs of the whole allocation', async () => {
  const script = await line('srun --ntasks-per-node=1', '--span-nodes');
  const job = await cluster.submit({ sbatch: ['-N2', '--ntasks-per-node=1', '--gres=gpu:a100:4', '-w n1,n2'], script });
  const node = await nodeOf(job);
  expect(node.hardware.gpus).toHaveLength(8);
  const mine = (await house.gateway.nodes()).filter((known) => known.job?.id === job.id);
  expect(mine).toHaveLength(1);
});

describe('the job ends', () => {
  it('by scancel: no request fails, a stream under way ends whole or says that it broke', async () => {
    const job = await cluster.submit({ sbatch: ['--gres=gpu:a100:1', '-w n1'], script: await line('exec') });
    const { session } = await nodeOf(job);
    const traffic = load(house, 4);
    const streaming = await streamFromJob(600);
    job.cancel();
    await notRouted(session, 2_000);
    const result = await streaming.result;
    expect(result.done || result.error !== undefined, 'a broken stream must not look whole').toBe(true);
    expect(result.done && result.error !== undefined).toBe(false);
    await job.reaches(['CANCELLED'], 20_000);
    expect(await causeOf(session)).toBe('cancelled');
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
    expect(traffic.served).toBeGreaterThan(20);
  });

  it('by its time limit, which nobody announced: no request fails', async () => {
    const job = await cluster.submit({ sbatch: ['--time=10', '-w n2'], script: await line('exec') });
    const { session } = await nodeOf(job);
    const traffic = load(house, 4);
    cluster.command('scontrol', 'update', `jobid=${job.id}`, 'endtime=now+5seconds');
    await job.reaches(['TIMEOUT'], 90_000);
    await notRouted(session, 1_000);
    expect(await causeOf(session)).toBe('time-limit');
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
  });

  it('when its time is nearly up, by itself: drained before the limit, with the stream under way finished', async () => {
    const job = await cluster.submit({
      sbatch: ['--time=2', '-w n2'],
      script: await line('exec', '--drain-before 100s'),
    });
    const { session } = await nodeOf(job, 18_000);
    const streaming = await streamFromJob(500);
    await notRouted(session, 40_000);
    expect(job.field('JobState')).toBe('RUNNING');
    expect(await streaming.result).toMatchObject({ done: true, error: undefined });
    await job.reaches(['COMPLETED', 'FAILED'], 30_000);
  });

  it('by SIGUSR1, which asks for a drain: the stream under way is finished first', async () => {
    const job = await cluster.submit({ sbatch: ['-w n2'], script: await line('exec') });
    const { session } = await nodeOf(job);
    const streaming = await streamFromJob(160);
    job.cancel('-b', '-s', 'USR1');
    await notRouted(session, 2_000);
    expect(await streaming.result).toMatchObject({ done: true, error: undefined });
    await job.reaches(['COMPLETED', 'FAILED'], 30_000);
  });

  it('because its engine fails: exit code 70 is the job’s', async () => {
    const job = await cluster.submit({ sbatch: ['-w n2'], script: await line('exec', '', '--exit-after-ms 3000') });
    const { session } = await nodeOf(job);
    await job.reaches(['FAILED'], 40_000);
    expect(job.field('ExitCode')).toBe('70:0');
    expect(await causeOf(session)).toBe('crashed');
  });

  it('because the gateway refuses its token: exit code 69 is the job’s', async () => {
    token = await cluster.secret('token', 'otj-wrong');
    const job = await cluster.submit({ sbatch: ['-w n2'], script: await line('exec') });
    await job.reaches(['FAILED'], 40_000);
    expect(job.field('ExitCode')).toBe('69:0');
  });
});

describe('the job is preempted', () => {
  const high = { sbatch: ['--partition=normal', '-w n3', '--gres=gpu:h100:2'], script: 'sleep 12' };

  it('under srun: drained within the grace, requeued, and back as a new session of the same job', async () => {
    // A job that ends by itself within the grace has ended: to be requeued, the script must still be there when the grace is over.
    const script = `${await line('srun')}\nsleep 120`;
    const job = await cluster.submit({ sbatch: ['--partition=preempt', '-w n3', '--gres=gpu:h100:2'], script });
    const first = await nodeOf(job);
    expect(first.job?.partition).toBe('preempt');
    const traffic = load(house, 4);
    const winner = await cluster.submit(high);
    await notRouted(first.session, 40_000);
    await winner.reaches(['RUNNING', 'COMPLETED'], 60_000);
    expect(await causeOf(first.session)).toBe('preempted');
    const second = await nodeOf(job, 120_000, first.session);
    expect(second.session).not.toBe(first.session);
    expect(job.field('Restarts')).toBe('1');
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
  });

  it('without srun, told only seconds before the end: no request fails', async () => {
    const job = await cluster.submit({
      sbatch: ['--partition=preempt-cancel', '-w n3', '--gres=gpu:h100:2'],
      script: await line('exec'),
    });
    const { session } = await nodeOf(job);
    const traffic = load(house, 4);
    await cluster.submit(high);
    await notRouted(session, 60_000);
    await job.reaches(['PREEMPTED'], 30_000);
    expect(await causeOf(session)).toBe('preempted');
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
  });
});
