/**
 * Sealed streams through a real gateway: their agent or engine is killed mid-sentence, and another candidate continues
 * them.
 */
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type SealNode, type SealOptions, sealedFetch } from '../../../clients/seal/index.ts';
import { buildFrame, FRAME, FrameSplitter, type ResponseFrame } from '../../../shared/seal/response-frames.ts';
import { startAgent } from '../../support/agent.ts';
import { text as wordsOf } from '../../support/engine/words.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { atEnd, endAll, eventually, type Managed } from '../../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../../support/provider-root.ts';
import { hear } from '../../support/streams.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

const TOKENS = 40;
/** Engines send this many tokens and wait for the test to break them, so no test depends on speed. */
const SAID = 8;
/** Slow enough that it takes several reads of the engine's socket, and so several chunks. */
const PAUSED = { pauseAfter: SAID, tokensPerSecond: 50 };
const WORD = 'canary-goes-on-77e1';
const BODY = {
  model: MODEL,
  stream: true,
  stream_options: { include_usage: true },
  messages: [{ role: 'user', content: WORD }],
};

interface Node {
  engine: Engine;
  agent: Managed;
}

let cluster: TestCluster;
let root: ProviderRoot;
const nodes: Node[] = [];
beforeAll(async () => {
  root = await providerRoot('lab');
  cluster = await openTestCluster({
    engine: { behaviour: { tokens: TOKENS } },
    agentArgs: ['--delegate-file', root.delegateFile],
  });
  const [agent] = cluster.agents;
  if (agent !== undefined) nodes.push({ engine: cluster.engine, agent });
  await addNode();
});
afterAll(endAll);

async function addNode(): Promise<void> {
  const engine = await startEngine({ models: [MODEL], behaviour: { tokens: TOKENS } });
  atEnd(() => engine.close());
  const args = ['--delegate-file', root.delegateFile];
  const agent = await startAgent({
    gateways: [cluster.gateway.url],
    token: cluster.token,
    engineUrl: engine.url,
    args,
  });
  nodes.push({ engine, agent });
  await cluster.gateway.serving(nodes.length);
}

/**
 * Waits until a request can be sealed to each of the nodes: then a node that the last test broke, or that a busy
 * machine delayed, is back.
 */
async function allListed(): Promise<void> {
  await eventually('the gateway lists the nodes', 30_000, async () => {
    const listed = await cluster.ask(`/v1/otela/seal?model=${MODEL}`);
    return (await listed.text()).split('"session"').length === nodes.length + 1 || undefined;
  });
}

const sealing = (more: SealOptions = {}) =>
  sealedFetch({ pins: { [root.provider]: root.pin }, candidates: 16, resume: true, ...more });
const carrier = () => nodes.find(({ engine }) => engine.running() > 0);

async function hangUp(node: Node | undefined): Promise<void> {
  node?.engine.hangUp();
  await eventually('the engine is alone', 10_000, () => (node?.engine.running() ? undefined : true));
}

/** Kills an agent for good, which removes a node: the test adds another one first. */
async function kill(node: Node | undefined): Promise<void> {
  if (node === undefined) throw new Error('no node carries the stream');
  node.agent.signal('SIGKILL');
  nodes.splice(nodes.indexOf(node), 1);
}

/** Asks for a stream; calls `breaks` after SAID tokens, after the other engines are allowed to send everything. */
async function told(breaks: (node: Node | undefined) => Promise<void>, more: SealOptions = {}, body: object = {}) {
  for (const { engine } of nodes) engine.control(PAUSED);
  await allListed();
  const seen: SealNode[] = [];
  const fetching = sealing({ onAnswer: (node) => void seen.push(node), ...more });
  const response = await fetching(`${cluster.base}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ ...BODY, ...body }),
  });
  expect(response.status, await (response.ok ? '' : response.clone().text())).toBe(200);
  const decoder = new TextDecoder();
  let all = '';
  let broken = false;
  for await (const piece of response.body ?? []) {
    all += decoder.decode(piece, { stream: true });
    if (broken || hear(all).textChunks < SAID) continue;
    broken = true;
    const node = carrier();
    for (const { engine } of nodes) if (engine !== node?.engine) engine.control({});
    await breaks(node);
  }
  return { heard: hear(all), seen };
}

const WHOLE = { text: wordsOf(TOKENS), dones: 1, finishes: ['stop'], errors: [], cut: false, roles: 1 };

describe('a sealed stream', () => {
  it('goes on at another candidate where its engine hangs up: one text, one id, one count', async () => {
    const { heard, seen } = await told(hangUp);
    expect(heard).toMatchObject(WHOLE);
    expect(heard.ids.size).toBe(1);
    expect(heard.usages).toEqual([expect.objectContaining({ completion_tokens: TOKENS, otela_estimated: true })]);
    expect(new Set(seen.map(({ session }) => session)).size).toBe(2);
  });

  it('goes on where its agent is killed with kill -9', async () => {
    await addNode();
    const { heard, seen } = await told(kill);
    expect(heard).toMatchObject(WHOLE);
    expect([heard.ids.size, seen.length]).toEqual([1, 2]);
  });

  it('goes on under the OpenAI SDK, which sees nothing of it', async () => {
    for (const { engine } of nodes) engine.control(PAUSED);
    await allListed();
    const client = new OpenAI({ baseURL: cluster.base, apiKey: cluster.key, maxRetries: 0, fetch: sealing() });
    const { model, messages } = BODY;
    const stream = await client.chat.completions.create({
      model,
      stream: true,
      messages: messages.map(({ content }) => ({ role: 'user', content })),
    });
    let [text, chunks] = ['', 0];
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      if (++chunks !== SAID) continue;
      const node = carrier();
      for (const { engine } of nodes) if (engine !== node?.engine) engine.control({});
      await hangUp(node);
    }
    expect(text).toBe(wordsOf(TOKENS));
  });

  it('ends with its node where its client does not ask for that', async () => {
    await expect(told(hangUp, { resume: false })).rejects.toEqual(expect.objectContaining({ code: 'gateway' }));
  });

  it('of a request that cannot be continued ends with its node, and its client is told', async () => {
    await expect(told(hangUp, {}, { n: 2 })).rejects.toEqual(expect.objectContaining({ code: 'gateway' }));
  });
});

describe('a gateway that lies about a continuation', () => {
  /** Changes all frames of a continued stream on their way to the client. */
  function forging(change: (parts: ResponseFrame[][]) => ResponseFrame[]): SealOptions['fetch'] {
    return async (input, init) => {
      const response = await fetch(input, init);
      if (init?.method !== 'POST') return response;
      const splitter = new FrameSplitter();
      const frames: ResponseFrame[] = [];
      let broken = false;
      for await (const piece of response.body ?? []) {
        frames.push(...splitter.push(piece).map(({ type, payload }) => ({ type, payload: payload.slice() })));
        if (broken || frames.filter(({ type }) => type === FRAME.chunk).length < 2) continue;
        broken = true;
        const node = carrier();
        for (const { engine } of nodes) if (engine !== node?.engine) engine.control({});
        await hangUp(node);
      }
      const parts: ResponseFrame[][] = [];
      const notes = frames
        .filter(({ type }) => type === FRAME.note)
        .map(({ payload }) => Buffer.from(payload).toString());
      for (const one of frames) {
        if (one.type === FRAME.segment) parts.push([]);
        if (one.type !== FRAME.note) parts.at(-1)?.push(one);
      }
      expect(parts.length, `the gateway said: ${notes.join('')}`).toBe(2);
      return new Response(Buffer.concat(change(parts).map(({ type, payload }) => buildFrame(type, payload))), response);
    };
  }

  it.each<[string, string, (parts: ResponseFrame[][]) => ResponseFrame[]]>([
    ['leaves the continuation out', 'cut', ([first = []]) => first],
    ['leaves out what came before it', 'not_opened', ([, second = []]) => second],
    [
      'leaves out the last piece before it',
      'not_opened',
      ([first = [], second = []]) => [...first.slice(0, -1), ...second],
    ],
    ['leaves out where it begins', 'not_opened', ([first = [], second = []]) => [...first, ...second.slice(1)]],
    ['leaves out a piece of it', 'not_opened', ([first = [], second = []]) => [...first, ...second.toSpliced(1, 1)]],
    ['says it twice', 'not_opened', ([first = [], second = []]) => [...first, ...second.slice(0, -1), ...second]],
  ])('%s: refused', async (_, code, change) => {
    await expect(told(async () => {}, { fetch: forging(change) })).rejects.toEqual(expect.objectContaining({ code }));
  });
});

it('nothing of what was said stands in the gateway’s output', () => {
  expect(cluster.gateway.process.output).not.toContain(WORD);
});
