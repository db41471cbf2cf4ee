/** Continued streams while processes are killed: gateway, agents and engines run as in production. */
import { afterAll, expect, it } from 'vitest';
import { engineCommand, startAgent } from '../support/agent.ts';
import { text as wordsOf } from '../support/engine/words.ts';
import { Gateway } from '../support/gateway.ts';
import { commandOf, descendants } from '../support/process-table.ts';
import { endAll, eventually, freePort, type Managed } from '../support/processes.ts';
import { hear } from '../support/streams.ts';
import { MODEL, openTestCluster } from '../support/test-cluster.ts';

afterAll(endAll);

const TOKENS = 200;
const CHAT = { model: MODEL, stream: true, messages: [{ role: 'user', content: 'Say something.' }] };
const COMPLETION = { model: MODEL, stream: true, prompt: 'Say something: ', max_tokens: TOKENS };
const USAGE = { stream_options: { include_usage: true } };

it('an engine and then an agent are killed with kill -9: each client hears one unbroken stream', async () => {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const agents: Managed[] = [];
  const addNode = async () => {
    const command = engineCommand(await freePort(), '--model', MODEL, '--tokens', String(TOKENS), '--rate', '20');
    agents.push(await startAgent({ gateways: [gateway.url], token, command }));
  };
  await addNode();
  await gateway.serving(1);
  const headers = {
    authorization: `Bearer ${key}`,
    'content-type': 'application/json',
    'x-otela-resume': '1',
  };
  const ask = async (path: string, body: object) => {
    const init = { method: 'POST', headers, body: JSON.stringify({ ...body, ...USAGE }) };
    const response = await fetch(`${gateway.url}/v1/${path}`, init);
    expect(response.status).toBe(200);
    return collect(response);
  };
  const streams = await Promise.all([ask('chat/completions', CHAT), ask('completions', COMPLETION)]);
  await addNode();
  await gateway.serving(2);
  kill9(engineOf(agents[0]));
  const goneOn = (times: number) =>
    eventually(`both go on, ${times} times`, 30_000, () =>
      streams.every(({ said }) => continuations(said()).length === times) ? true : undefined,
    );
  await goneOn(1);
  await addNode();
  await eventually('the third serves', 20_000, async () => (await gateway.serving(2)).length === 2);
  const beforeKill = streams.map(({ said }) => hear(said()).textChunks);
  agents[1]?.signal('SIGKILL');
  await goneOn(2);
  for (const [n, { over, said }] of streams.entries()) {
    await over;
    const heard = hear(said());
    expect(heard).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [], cut: false });
    expect(heard.ids.size).toBe(1);
    expect(heard.finishes).toHaveLength(1);
    expect(heard.roles).toBe(n === 0 ? 1 : 0);
    expect(heard.usages).toEqual([expect.objectContaining({ completion_tokens: TOKENS, otela_estimated: true })]);
    expect(new Set(continuations(said())).size).toBe(2);
    expect(heard.textChunks).toBeGreaterThan(beforeKill[n] ?? 0);
  }
});

it('all replicas are killed with kill -9 in mid-stream: each client hears one whole stream when one has come back', async () => {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const addNode = async () => {
    const command = engineCommand(await freePort(), '--model', MODEL, '--tokens', String(TOKENS), '--rate', '20');
    return startAgent({ gateways: [gateway.url], token, command });
  };
  const agents = await Promise.all([addNode(), addNode()]);
  await gateway.serving(2);
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-otela-resume': '1' };
  const ask = async (path: string, body: object) => {
    const init = { method: 'POST', headers, body: JSON.stringify({ ...body, ...USAGE }) };
    return collect(await fetch(`${gateway.url}/v1/${path}`, init));
  };
  const asked = Array.from({ length: 3 }, () => [ask('chat/completions', CHAT), ask('completions', COMPLETION)]);
  const streams = await Promise.all(asked.flat());
  await eventually('all have begun', 10_000, () =>
    streams.every(({ said }) => hear(said()).textChunks > 5) ? true : undefined,
  );
  for (const agent of agents) agent.signal('SIGKILL');
  await eventually('nobody serves', 20_000, async () => ((await gateway.serving(0)).length === 0 ? true : undefined));
  // The gateway gives up the broken connections after 10 s. After that, all streams wait for a node.
  await new Promise((resolve) => setTimeout(resolve, 13_000));
  expect(streams.flatMap(({ said }) => hear(said()).errors)).toEqual([]);
  await addNode();
  for (const [n, { over, said }] of streams.entries()) {
    await over;
    const heard = hear(said());
    expect(heard).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [], cut: false });
    expect(heard.ids.size).toBe(1);
    expect(heard.finishes).toHaveLength(1);
    expect(heard.roles).toBe(n % 2 === 0 ? 1 : 0);
    expect(heard.usages).toEqual([expect.objectContaining({ completion_tokens: TOKENS })]);
    expect(continuations(said())).toHaveLength(1);
  }
});

it('a stream waits for a place at a busy node; a client that leaves while one is looked for leaves no engine at work', async () => {
  const { engines, ask } = await openTestCluster({ nodes: 2, agentArgs: ['--max-running', '1'] });
  for (const { control } of engines) control({ pauseAfter: 8, tokens: TOKENS });
  const goesOn = collect(await ask('/v1/chat/completions', CHAT, { headers: { 'x-otela-resume': '1' } }));
  const broken = engines.find((engine) => engine.running() > 0);
  const busy = engines.find((engine) => engine !== broken);
  const inTheWay = await ask('/v1/completions', COMPLETION);
  expect(busy?.running()).toBe(1);
  // The tokenizer of the busy engine may be called in any case, because a call takes no slot.
  const generated = () => busy?.requests.filter(({ url }) => url.endsWith('/completions')).length;
  const seen = generated();
  broken?.control({ status: 503 }); // otherwise the stream would continue at the same engine
  broken?.hangUp();
  await eventually('the break is noticed', 5_000, () => (broken?.running() === 0 ? true : undefined));
  busy?.control({ tokens: TOKENS });
  expect(generated()).toBe(seen);
  busy?.hangUp();
  await goesOn.over;
  expect(hear(goesOn.said())).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [] });
  expect(hear(await inTheWay.text()).errors).toHaveLength(1);

  const left = new AbortController();
  const init = { headers: { 'x-otela-resume': '1' }, signal: left.signal };
  for (const { control } of engines) control({ pauseAfter: 8 }); // both are healthy again
  const response = await ask('/v1/completions', COMPLETION, init);
  await response.body?.getReader().read();
  const first = engines.find((engine) => engine.running() > 0);
  const other = engines.find((engine) => engine !== first);
  other?.control({ delayMs: 60_000 });
  first?.hangUp();
  await eventually('the other is asked', 5_000, () => other?.running() || undefined);
  left.abort();
  await eventually('nobody works', 5_000, () => (other?.running() === 0 ? true : undefined));
});

const continuations = (said: string) => hear(said).comments.filter((comment) => comment.startsWith('otela continued'));

/** Process id of the engine that the agent runs. */
function engineOf(agent: Managed | undefined): number {
  const found = descendants(agent?.pid ?? -1).find((pid) => commandOf(pid).includes('support/engine.ts'));
  if (found === undefined) throw new Error('the agent runs no engine');
  return found;
}

function kill9(pid: number): void {
  process.kill(pid, 'SIGKILL');
}

interface Collected {
  said(): string;
  over: Promise<void>;
}

function collect(response: Response): Collected {
  let all = '';
  const decoder = new TextDecoder();
  const over = (async () => {
    for await (const piece of response.body ?? []) all += decoder.decode(piece, { stream: true });
  })();
  return { said: () => all, over };
}
