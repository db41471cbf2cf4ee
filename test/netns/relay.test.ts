/**
 * Two agents, each behind a NAT that accepts no incoming connection, without a gateway: the engine of one serves a
 * request at the ingress of the other, through an agent on a third network that both reach.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import { askNetwork, type LocalAgent, localAgents } from '../../agent/host/control-client.ts';
import { startAgent } from '../support/agent.ts';
import { text } from '../support/engine/words.ts';
import { patience } from '../support/patience.ts';
import { endAll, eventually, type Managed, temporaryDirectory } from '../support/processes.ts';
import { chatBody, MODEL } from '../support/test-cluster.ts';
import { NODE, ROOT } from '../support/where.ts';
import { on, openWide, type Wide } from './network.ts';

afterEach(endAll);

const TOGETHER_MS = 60_000;

interface Inhabitant {
  host: string;
  env: Record<string, string>;
  process: Managed;
  status(): Promise<LocalAgent['status']>;
}

async function inhabitant(
  wide: Wide,
  host: string,
  options: { engine?: boolean; args?: string[] },
): Promise<Inhabitant> {
  const env = { XDG_RUNTIME_DIR: await temporaryDirectory('otela-relay') };
  const engine = [NODE, `${ROOT}/test/support/engine.ts`, '--port', '7999', '--model', MODEL];
  const token = await wide.gateway.createJoinToken('lab', host);
  const process = await startAgent({
    gateways: [wide.gateway.url],
    token,
    prefix: on(host),
    args: options.args ?? [],
    env,
    ...(options.engine === true ? { command: engine } : {}),
  });
  const status = async () => {
    const [agent] = await localAgents(env);
    if (agent === undefined) throw process.failure('has no status');
    return agent.status;
  };
  await eventually(
    `the agent on ${host} is in`,
    TOGETHER_MS,
    async () => (await status().catch(() => undefined))?.admitted || undefined,
  );
  return { host, env, process, status };
}

/** A host on a third network, which both reach: the gateway's. */
const OPEN = 'gateway';

interface Answer {
  status: number;
  text: string;
  ms: number;
}

/** Placeholder for a prompt of 2 MB, which does not fit on a command line. */
const LONG = 'a long prompt';

const CLIENT = `
  const [, url, key, said] = process.argv;
  const body = said.replace('${LONG}', 'x'.repeat(2_000_000));
  const startedAt = performance.now();
  const headers = { authorization: 'Bearer ' + key, 'content-type': 'application/json' };
  fetch(url, { method: 'POST', body, headers, signal: AbortSignal.timeout(100_000) }).then(async (answer) => {
    const text = await answer.text();
    console.log(JSON.stringify({ status: answer.status, text, ms: performance.now() - startedAt }));
  });`;

/** A request of a client on the agent's own host to the agent's ingress. */
async function ask({ host, process, status }: Inhabitant, body: unknown): Promise<Answer> {
  const { ingress } = await status();
  if (ingress === undefined) throw process.failure('has no ingress');
  const key = readFileSync(ingress.key_file, 'utf8').trim();
  const command = [
    ...on(host).slice(1),
    NODE,
    '-e',
    CLIENT,
    `${ingress.url}/chat/completions`,
    key,
    JSON.stringify(body),
  ];
  const { stdout } = await promisify(execFile)('ip', command, {
    timeout: patience(120_000),
    maxBuffer: 64 * 1024 * 1024,
  });
  return JSON.parse(stdout) as Answer;
}

/** The words of a stream. Asserts that it ended properly. */
function wordsOf({ text: events }: Answer): string {
  expect(events).toContain('data: [DONE]');
  expect(events).not.toContain('"error"');
  const deltas = events.matchAll(/"content":("(?:[^"\\]|\\.)*")/g);
  return [...deltas].map(([, word]) => JSON.parse(word ?? '""') as string).join('');
}

/** An ingress in one cluster, an engine in the other, and the programs at OPEN. */
async function apart(wide: Wide) {
  const client = await inhabitant(wide, 'c1h1', { args: ['--ingress', '127.0.0.1:0'] });
  const server = await inhabitant(wide, 'c2h1', { engine: true });
  await eventually('the client knows of the model', TOGETHER_MS, async () => {
    const [agent] = await localAgents(client.env);
    const rows = agent === undefined ? [] : await askNetwork(agent);
    return rows.some(({ state, models }) => state === 'SERVING' && models.length > 0) || undefined;
  });
  return { client, server };
}

const spent = (answers: Answer[]) => answers.map(({ ms }) => ms.toFixed(0)).join(', ');

it('meet at an agent with --offer-relay: a request is served, a stream is whole, and goes over to a direct way as soon as there is one', async () => {
  const wide = await openWide();
  // These NATs let no hole be punched.
  for (const cluster of [1, 2] as const) wide.network.nat(cluster, 'symmetric');
  const relay = await inhabitant(wide, OPEN, { args: ['--mesh', ':7000', '--offer-relay'] });
  const { client, server } = await apart(wide);
  await eventually('both can be reached through the relay', TOGETHER_MS, async () =>
    (await relay.status()).mesh?.reserved === 2 ? true : undefined,
  );
  // There is no gateway from here on.
  await wide.gateway.kill9();
  const unary: Answer[] = [];
  for (let n = 0; n < 4; n++) unary.push(await ask(client, chatBody({ tokens: 3 })));
  expect(unary.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect((await client.status()).mesh?.relayed).toBe(1);
  expect((await server.status()).mesh?.relayed).toBe(1);
  expect((await relay.status()).mesh?.relaying).toBe(1);
  console.log(`through a relay, the first with its handshakes: ${spent(unary)} ms (busy machine)`);
  const streaming = ask(client, chatBody({ tokens: 800, tokensPerSecond: 40 }, { stream: true }));
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  wide.network.openWay(1, 2);
  const openedAt = Date.now();
  await eventually('the direct way is taken', 45_000, async () =>
    [await client.status(), await server.status()].every(({ mesh }) => mesh?.relayed === 0) ? true : undefined,
  );
  console.log(`a direct way was taken ${Date.now() - openedAt} ms after there was one`);
  const whole = await streaming;
  expect(wordsOf(whole)).toBe(text(800));
  const direct: Answer[] = [];
  for (let n = 0; n < 4; n++) direct.push(await ask(client, chatBody({ tokens: 3 })));
  console.log(`directly: ${spent(direct)} ms (busy machine)`);
  expect((await relay.status()).mesh?.relaying).toBe(0);
});

it('punch a hole through their NATs, and a stream that began at the relay goes over to it', async () => {
  const wide = await openWide();
  const relay = await inhabitant(wide, OPEN, { args: ['--mesh', ':7000', '--offer-relay'] });
  const { client, server } = await apart(wide);
  await eventually('both can be reached through the relay', TOGETHER_MS, async () =>
    (await relay.status()).mesh?.reserved === 2 ? true : undefined,
  );
  const beganAt = Date.now();
  const streaming = ask(client, chatBody({ tokens: 800, tokensPerSecond: 40 }, { stream: true }));
  await eventually('a circuit', TOGETHER_MS, async () =>
    (await relay.status()).mesh?.relaying === 1 ? true : undefined,
  );
  await eventually('a direct path', TOGETHER_MS, async () =>
    [await client.status(), await server.status()].every(({ mesh }) => mesh?.relayed === 0) ? true : undefined,
  );
  console.log(`a hole was punched within ${Date.now() - beganAt} ms of the first request (busy machine)`);
  expect(wordsOf(await streaming)).toBe(text(800));
  await eventually('the relay to carry nothing', TOGETHER_MS, async () =>
    (await relay.status()).mesh?.relaying === 0 ? true : undefined,
  );
  expect((await ask(client, chatBody({ tokens: 3 }))).status).toBe(200);
  expect((await client.status()).mesh?.relayed).toBe(0);
});

it('meet at their gateway where there is no such agent', async () => {
  const wide = await openWide();
  const { client, server } = await apart(wide);
  const unary: Answer[] = [];
  for (let n = 0; n < 4; n++) unary.push(await ask(client, chatBody({ tokens: 3 })));
  expect(unary.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect((await client.status()).mesh?.relayed).toBe(1);
  expect((await server.status()).mesh?.relayed).toBe(1);
  console.log(`through a gateway, the first with its handshakes: ${spent(unary)} ms (busy machine)`);
  // In each direction more than the buffers on the way hold.
  const long = await ask(
    client,
    chatBody({ tokens: 10_000 }, { stream: true, messages: [{ role: 'user', content: LONG }] }),
  );
  expect(wordsOf(long)).toBe(text(10_000));
});
