/**
 * An autoscaler, a real gateway and a real Slurm that is empty at first: one cluster and one gateway for all tests, in
 * their order.
 */
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { Gateway } from '../support/gateway.ts';
import { promise } from '../support/patience.ts';
import { atEnd, endAll, eventually, type Managed } from '../support/processes.ts';
import { chatBody, MODEL } from '../support/test-cluster.ts';
import { Cluster, USER } from './cluster.ts';
import { pageOf, type Shown, showsAt, streamed } from './factory-page.ts';
import { factoryToml, startFactory } from './real-factory.ts';

/** The mock engine's loading time. */
const LOAD_MS = 5_000;
/** In addition to Slurm's queue and the loading time: the order, and the starts of job, agent and engine. */
const REST_MS = 10_000;
const IDLE_MS = 10_000;
/** Maximum replicas of the batch's model: all GPUs of the first node. */
const CAP = 4;
/** The first ones are answered immediately, the others wait for a file that the test writes. */
const [OPEN_LINES, GATED_LINES] = [60, 240];
const PATH = '/v1/chat/completions';

let gateway: Gateway;
let cluster: Cluster;
let key: string;
let config: string;
let text: string;
let factory: Managed;
/** The job that the first request started. */
let first = '';

beforeAll(async () => {
  gateway = await Gateway.start();
  cluster = await Cluster.up();
  key = await gateway.createKey();
  const joinToken = await cluster.secret('join-token', await gateway.createJoinToken('hpc', 'alps'));
  const made = await gateway.admin('POST', 'factory-tokens', { provider: 'hpc', name: 'pool' });
  const token = await cluster.secret('factory-token', z.object({ token: z.string() }).parse(made).token);
  config = join(cluster.directory, 'factory.toml');
  const state = join(cluster.directory, 'factory');
  await mkdir(state, { mode: 0o700 });
  await chown(state, USER.uid, USER.gid);
  text = factoryToml({
    directory: cluster.directory,
    gateway: gateway.url,
    name: 'pool',
    cluster: 'alps',
    launcher: 'slurm',
    tokenFile: token,
    joinTokenFile: joinToken,
    pool: POOL,
    loadMs: LOAD_MS,
    model: `max = ${CAP}\nidle = "${IDLE_MS / 1_000}s"\nlines_per_job = 20`,
  });
  await writeConfig(text);
  factory = start();
});
afterAll(endAll);

const POOL = `name = "preempt-cancel"
gres = "a100"
gpus_per_node = 4
time = "10"
preemptable = true
options = ["nodelist=n1"]`;

/** A partition that does not exist, and an engine that fails at its start. */
const FAULTY = `
[[clusters.alps.pools]]
name = "gone"
gpu = "V100"
gpus_per_node = 1

[[clusters.alps.pools]]
name = "normal"
gpu = "RTX3090"
gres = "rtx3090"
gpus_per_node = 4
time = "10"

[recipes.refused]
weights = "none"
[[recipes.refused.engines]]
gpu = ["V100"]
gpus = 1
engine = "lmdeploy"
[models."lab/refused"]
recipe = "refused"
min = 1

[recipes.broken]
weights = "none"
[[recipes.broken.engines]]
gpu = ["RTX3090"]
gpus = 1
command = ["bash", "-c", "echo torch.OutOfMemoryError: CUDA out of memory; exit 1", "{{port}}"]
[models."lab/broken"]
recipe = "broken"
min = 1
`;

async function writeConfig(content: string): Promise<void> {
  await writeFile(config, content);
  await chmod(config, 0o644);
}

function start(): Managed {
  const started = startFactory(cluster.directory, config, { ...cluster.userEnv, HOME: '/nonexistent', USER: 'nobody' });
  atEnd(() => started.stop());
  return started;
}

const page = () => pageOf(gateway);
const shows = (what: string, withinMs: number, met: (factory: Shown) => boolean) =>
  showsAt(gateway, what, withinMs, met);

/** The autoscaler's jobs that Slurm has not ended. */
async function jobs(): Promise<{ id: string; state: string; pool: string }[]> {
  const out = await cluster.asked('squeue', '-h', '-o', '%i %T %P %j');
  return out
    .split('\n')
    .filter((line) => line.includes(' otela-pool--'))
    .map((line) => line.split(' '))
    .map(([id = '', state = '', pool = '']) => ({ id, state, pool }));
}

/** squeue may fail for a moment, so this waits for an answer. */
const running = () =>
  eventually('squeue answers', 20_000, async () => (await jobs()).filter(({ state }) => state === 'RUNNING'));

it('a streaming request for a cold model is told what happens and answered, as soon as queue and load allow', async () => {
  await shows('a cold model', 30_000, ({ models }) => models.some(({ state }) => state === 'cold'));
  expect(cluster.command('squeue', '-h')).toBe('');
  const { firstMs, body } = await streamed(gateway.url, key, '100');
  expect(body).toContain('data: [DONE]');
  first = (await running())[0]?.id ?? '';
  const queueMs = cluster.queuedMs(first);
  const figure = `first token of a cold model: ${Math.round(firstMs)} ms, of them ${queueMs} ms in Slurm's queue and ${LOAD_MS} ms of loading`;
  console.info(figure);
  expect(firstMs, figure).toBeLessThan(queueMs + LOAD_MS + promise(REST_MS));
});

it('a batch makes the pool grow to its cap and shrink to nothing; half of it is preempted and the factory killed meanwhile', async () => {
  const gate = join(cluster.directory, 'out', 'gate');
  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key });
  const ids = Array.from({ length: OPEN_LINES + GATED_LINES }, (_, n) => `line-${n}`);
  const lines = ids.map((id, n) => {
    const body = chatBody({ tokens: 2, ...(n < OPEN_LINES ? {} : { gate }) });
    return JSON.stringify({ custom_id: id, method: 'POST', url: PATH, body });
  });
  const input = await client.files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'in.jsonl'),
    purpose: 'batch',
  });
  const batch = await client.batches.create({ input_file_id: input.id, endpoint: PATH, completion_window: '24h' });
  const done = async () => (await client.batches.retrieve(batch.id)).request_counts?.completed ?? 0;

  let most = 0;
  await eventually('the pool is as large as it may be', 60_000, async () => {
    const now = (await running()).length;
    most = Math.max(most, now);
    return now === CAP ? true : undefined;
  });
  await eventually('the ungated lines are done', 60_000, async () => ((await done()) >= OPEN_LINES ? true : undefined));

  await shows('a pool that serves', 60_000, ({ models }) => models[0]?.ready === CAP);

  factory.signal('SIGKILL');
  await factory.end(5_000);
  const before = (await running()).map(({ id }) => id);
  // A context outlives its request: the engine that answered the first request works on the batch.
  expect(before).toContain(first);
  // A job of a partition with a higher priority takes half of their GPUs: TERM, then KILL.
  const other = await cluster.submit({
    sbatch: ['--partition=normal', '--gres=gpu:a100:2', '-w', 'n1'],
    script: 'sleep 600',
  });
  await eventually('half of the pool is preempted', 40_000, async () =>
    (await running()).filter(({ id }) => before.includes(id)).length === CAP / 2 ? true : undefined,
  );
  expect(await done()).toBeLessThan(ids.length);
  // It starts with two more models, which cannot start.
  await writeConfig(text + FAULTY);
  factory = start();
  const survivors = (await running()).map(({ id }) => id);
  await shows('the jobs that it left', 30_000, (now) =>
    survivors.every((id) => now.jobs.some((job) => job.id === id && job.state === 'ready')),
  );

  // There are too few free GPUs: the other jobs wait in Slurm, and are not reported as failed.
  await shows('that the node is full', 60_000, (now) =>
    now.jobs.some(({ state, reason }) => state === 'pending' && /Resources|Priority/.test(reason ?? '')),
  );
  const early = (await page())?.jobs.filter(({ model, state }) => model === MODEL && state === 'failed');
  expect(early).toEqual([]);

  // The controller is unreachable for a moment: no job counts as gone.
  cluster.stopController();
  const away = await shows('that Slurm does not answer', 30_000, (now) => now.clusters[0]?.reachable === false);
  expect(away.clusters[0]?.reason).toMatch(/slurm/i);
  expect(away.jobs.filter(({ id }) => survivors.includes(id)).map(({ state }) => state)).toEqual(['ready', 'ready']);
  cluster.startController();
  await shows('that Slurm answers', 60_000, (now) => now.clusters[0]?.reachable === true);

  other.cancel();
  await eventually('the pool is as large as it may be again', 60_000, async () => {
    const now = (await running()).filter(({ pool }) => pool === 'preempt-cancel').length;
    most = Math.max(most, now);
    return now === CAP ? true : undefined;
  });
  await writeFile(gate, '');
  const ended = await eventually('the batch has ended', 60_000, async () => {
    const now = await client.batches.retrieve(batch.id);
    return now.status === 'completed' ? now : undefined;
  });
  const demandEnded = performance.now();
  expect(ended.request_counts).toEqual({ total: ids.length, completed: ids.length, failed: 0 });
  const output = await (await client.files.content(ended.output_file_id ?? '')).text();
  const answered = output
    .trimEnd()
    .split('\n')
    .map((line) => z.object({ custom_id: z.string() }).parse(JSON.parse(line)).custom_id);
  expect(answered.sort()).toEqual([...ids].sort());
  expect(most).toBe(CAP);

  await eventually('the pool is empty', IDLE_MS + 60_000, async () => ((await jobs()).length === 0 ? true : undefined));
  console.info(
    `pool of ${CAP} jobs: empty ${Math.round((performance.now() - demandEnded) / 1_000)} s after the batch's end, idle time-out ${IDLE_MS / 1_000} s`,
  );
  await eventually('nothing of it runs', 10_000, () =>
    cluster.processes(/otela-agent|stand-in-engine/) === '' ? true : undefined,
  );
  await eventually('no node serves', 30_000, async () =>
    (await gateway.nodes()).every(({ state }) => state === 'LEFT' || state === 'DOWN') ? true : undefined,
  );
});

it('operators are shown why sbatch refuses, and what an engine printed that failed three times', async () => {
  // The file already has this content, unless the previous test ended early.
  await writeConfig(text + FAULTY);
  if (!factory.running) factory = start();
  const reason = ({ models }: Shown, model: string) => models.find(({ id }) => id === model)?.reason ?? '';
  const now = await shows(
    'a rest, and a refusal',
    110_000,
    (one) =>
      one.models.some(({ state }) => state === 'resting') && /invalid partition/i.test(reason(one, 'lab/refused')),
  );
  expect(reason(now, 'lab/broken')).toMatch(/failed/);
  const failed = now.jobs.filter(({ model, state }) => model === 'lab/broken' && state === 'failed');
  expect(failed.map(({ log_tail }) => log_tail)).toEqual(
    Array.from({ length: 3 }, () => expect.stringContaining('CUDA out of memory')),
  );
  const status = cluster.program('otela-factory.mjs', 'status', '--config', config);
  expect(status).toMatch(/lab\/refused .*invalid partition/i);
  expect(cluster.program('otela-factory.mjs', 'explain', 'lab/broken', '--config', config)).toContain(
    'torch.OutOfMemoryError: CUDA out of memory',
  );
  expect(cluster.program('otela-factory.mjs', 'check', '--config', config)).toMatch(/bad .*alps\/gone/);
});
