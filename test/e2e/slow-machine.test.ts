/** A gateway, an agent and its engine share a fifth of one core: no working part is ended for being slow. */
import { execFile } from 'node:child_process';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { engineCommand, startAgent } from '../support/agent.ts';
import { text as wordsOf } from '../support/engine/words.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll, freePort } from '../support/processes.ts';
import { SlowGroup } from '../support/slow-group.ts';
import { hear } from '../support/streams.ts';
import { GATEWAY_MAIN, NODE, ROOT } from '../support/where.ts';

const MODEL = 'slow';
const TOKENS = 60;
/** These tests promise no times: a timeout means that something hangs. */
const HANGS_MS = 900_000;

let group: SlowGroup | undefined;
let gateway: Gateway;
let client: OpenAI;
const sockets = new Set<Socket>();

/** Opens a path to the gateway that a test can cut. */
async function pathTo(port: number): Promise<string> {
  const server = createServer((from) => {
    const to = connect(port, '127.0.0.1');
    for (const socket of [from, to]) {
      sockets.add(socket);
      socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    }
    from.pipe(to).pipe(from);
    from.on('close', () => to.destroy());
    to.on('close', () => from.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const cut = () => sockets.forEach((socket) => void socket.destroy());

beforeAll(async () => {
  // The whole run may be in such a group: `npm run test:slow`.
  if (process.env.OTELA_SLOW_GROUP === undefined) {
    group = SlowGroup.make();
    group.enter(process.pid);
  }
  gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const command = engineCommand(await freePort(), '--model', MODEL, '--rate', '20', '--tokens', String(TOKENS));
  await startAgent({ gateways: [await pathTo(gateway.port)], token, command });
  await gateway.serving(1, HANGS_MS, MODEL);
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.createKey(), maxRetries: 0 });
}, HANGS_MS);

afterAll(async () => {
  await endAll();
  group?.leave(process.pid);
  group?.remove();
}, HANGS_MS);

const body = { model: MODEL, max_tokens: TOKENS, messages: [{ role: 'user' as const, content: 'Say something.' }] };

async function stream(begun: () => void = () => {}): Promise<string> {
  const response = await client.chat.completions.create({ ...body, stream: true }).asResponse();
  const decoder = new TextDecoder();
  let text = '';
  for await (const piece of response.body ?? []) {
    text += decoder.decode(piece, { stream: true });
    begun();
  }
  return text;
}

it('streams side by side are whole', { timeout: HANGS_MS }, async () => {
  for (const answer of await Promise.all([stream(), stream(), stream(), stream()]))
    expect(hear(answer)).toMatchObject({ text: wordsOf(TOKENS), errors: [], dones: 1 });
});

it('a command makes a key', { timeout: HANGS_MS }, async () => {
  const flags = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
  const { stdout } = await promisify(execFile)(NODE, [GATEWAY_MAIN, 'keys', 'create', '--name', 'slow', ...flags], {
    cwd: ROOT,
  });
  expect(stdout).toContain('sk-otela-');
});

it('each line of a batch is answered once', { timeout: HANGS_MS }, async () => {
  const names = Array.from({ length: 12 }, (_, at) => `line-${at}`);
  const url = '/v1/chat/completions' as const;
  const lines = names.map((custom_id) =>
    JSON.stringify({ custom_id, method: 'POST', url, body: { ...body, max_tokens: 3 } }),
  );
  const file = await client.files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'in.jsonl'),
    purpose: 'batch',
  });
  let batch = await client.batches.create({ input_file_id: file.id, endpoint: url, completion_window: '24h' });
  while (['validating', 'in_progress', 'finalizing'].includes(batch.status)) {
    await new Promise((resolve) => setTimeout(resolve, 500));
    batch = await client.batches.retrieve(batch.id);
  }
  expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 12, completed: 12, failed: 0 } });
  const output = await (await client.files.content(batch.output_file_id ?? '')).text();
  const answered = output
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line).custom_id);
  expect(answered.toSorted()).toEqual(names.toSorted());
});

it('streams go on over a tunnel that is cut in their middle', { timeout: HANGS_MS }, async () => {
  let cuts = 0;
  const isBegun = () => {
    if (++cuts === 4) cut();
  };
  for (const answer of await Promise.all([stream(isBegun), stream(), stream()]))
    expect(hear(answer)).toMatchObject({ text: wordsOf(TOKENS), errors: [], dones: 1 });
  expect(cuts).toBeGreaterThan(4);
});
