/** A batch on real Slurm jobs; half of them are preempted while they work on it. */
import OpenAI, { toFile } from 'openai';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { endAll, eventually } from '../support/processes.ts';
import { MODEL, type TestCluster } from '../support/test-cluster.ts';
import type { Cluster } from './cluster.ts';
import { openPlace } from './place.ts';

/** The long form runs 2,000: see test/soak. */
const LINES = Number(process.env.OTELA_BATCH_LINES ?? 500);
const ENDPOINT = '/v1/chat/completions';

let house: TestCluster;
let cluster: Cluster;
let token: string;

beforeEach(async () => {
  ({ house, cluster, token } = await openPlace());
});
afterEach(endAll);

it('answers every line once though half of its jobs are preempted', async () => {
  // The replica outside Slurm must not help.
  await house.agents[0]?.stop();
  const submit = async (partition: string) =>
    cluster.submit({
      sbatch: [`--partition=${partition}`, '--gres=gpu:a100:1', '-w n1'],
      script: await cluster.agentLine('exec', house.gateway.url, token, MODEL),
    });
  const volatile = [await submit('preempt-cancel'), await submit('preempt-cancel')];
  const lasting = [await submit('normal'), await submit('normal')];
  const serving = (id: string) =>
    eventually(`job ${id} serves`, 60_000, async () =>
      (await house.gateway.nodes()).find(({ job, state }) => job?.id === id && state === 'SERVING'),
    );
  await Promise.all([...volatile, ...lasting].map(({ id }) => serving(id)));
  const client = new OpenAI({ baseURL: house.base, apiKey: house.key, maxRetries: 0 });
  const ids = Array.from({ length: LINES }, (_, i) => `line-${i}`);
  const body = { model: MODEL, messages: [], stand_in: { tokens: 2, delayMs: 100 } };
  const lines = ids.map((id) => JSON.stringify({ custom_id: id, method: 'POST', url: ENDPOINT, body }));
  const file = await client.files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'in.jsonl'),
    purpose: 'batch',
  });
  const { id } = await client.batches.create({ input_file_id: file.id, endpoint: ENDPOINT, completion_window: '24h' });
  const counted = (least: number) =>
    eventually(`${least} lines are done`, 120_000, async () => {
      const { request_counts: counts } = await client.batches.retrieve(id);
      return (counts?.completed ?? 0) >= least ? counts : undefined;
    });
  await counted(40);
  // A job of a partition with a higher priority takes their GPUs, in Slurm's way: TERM, then KILL.
  await cluster.submit({ sbatch: ['--partition=normal', '--gres=gpu:a100:2', '-w n1'], script: 'sleep 600' });
  const batch = await eventually('the batch has ended', 180_000, async () => {
    const now = await client.batches.retrieve(id);
    return now.status === 'completed' ? now : undefined;
  });
  expect(batch.request_counts).toEqual({ total: LINES, completed: LINES, failed: 0 });
  const text = await (await client.files.content(batch.output_file_id ?? '')).text();
  const answered = text
    .trimEnd()
    .split('\n')
    .map((one) => String(JSON.parse(one).custom_id));
  expect(answered.sort()).toEqual([...ids].sort());
});
