import { createHash } from 'node:crypto';
import { afterEach, expect, it } from 'vitest';
import { SILENT_MS } from '../../../agent/ingress/avoided-nodes.ts';
import { firstConnection } from '../../../agent/mesh/channel/happy-eyeballs.ts';
import { promise } from '../../support/patience.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { patternSha256 } from '../../support/raw.ts';
import { chatBody, envelopeOf, MODEL } from '../../support/test-cluster.ts';
import { entryOf, Village, type Villager } from './village.ts';

afterEach(endAll);

const STREAM = { stream: true };

async function village(nodes: number): Promise<{ village: Village; here: Villager; nodes: Villager[] }> {
  const all = new Village();
  const here = await all.add({ engine: false });
  const others: Villager[] = [];
  for (let n = 0; n < nodes; n++) others.push(await all.add());
  return { village: all, here, nodes: others };
}

it('a node that cannot be reached is passed over, and left alone afterwards', async () => {
  const { village: all, here, nodes } = await village(2);
  if (nodes[0] !== undefined) nodes[0].reachable = false;
  for (let n = 0; n < 20; n++) expect((await here.ask('/chat/completions', chatBody())).status).toBe(200);
  expect(nodes[1]?.engine?.requests.length).toBe(20);
  expect(all.dialled).toBe(1);
});

it('a node that goes DOWN, is suspected or comes back is known so from the next request on', async () => {
  const { village: all, here, nodes } = await village(1);
  const [node] = nodes;
  if (node === undefined) throw new Error('no node');
  const status = async () => (await here.ask('/chat/completions', chatBody())).status;
  expect(await status()).toBe(200);
  all.publish({ ...node.entry, state: 'DOWN' });
  expect(await status()).toBe(503);
  all.publish({ ...node.entry, suspected: true, updated_at: new Date(Date.now() - 60_000).toISOString() });
  expect(await status()).toBe(503);
  all.publish(node.entry);
  expect(await status()).toBe(200);
});

it('a node whose engine keeps failing is left alone, and every request is answered', async () => {
  const { here, nodes } = await village(2);
  nodes[0]?.engine?.control({ status: 503 });
  for (let n = 0; n < 60; n++) expect((await here.ask('/chat/completions', chatBody())).status).toBe(200);
  expect(nodes[1]?.engine?.requests.length).toBe(60);
  const asked = nodes[0]?.engine?.requests.length ?? 0;
  expect(asked).toBeGreaterThanOrEqual(1);
  // Once a second until five failures open its breaker; on a slow machine one or two probes are added.
  expect(asked).toBeLessThanOrEqual(7);
});

it('many nodes beyond reach do not use up the attempts', async () => {
  const { village: all, here, nodes } = await village(1);
  for (let n = 0; n < 6; n++) all.publish(entryOf('z'.repeat(25) + 'abcdefgh'[n], 'lab', 'local', [MODEL]));
  const response = await here.ask('/chat/completions', chatBody());
  expect(response.status).toBe(200);
  expect(response.headers.get('x-otela-node')).toBe(nodes[0]?.session);
});

it('if no node can be reached, the client is told so, and may retry', async () => {
  const { here, nodes } = await village(1);
  if (nodes[0] !== undefined) nodes[0].reachable = false;
  const response = await here.ask('/chat/completions', chatBody());
  expect(response.status).toBe(503);
  expect((await envelopeOf(response)).code).toBe('no_capacity');
  expect(response.headers.get('retry-after')).toBe('10');
});

it.each([429, 502, 503])('an engine that answers %s is passed over for another', async (status) => {
  const { here, nodes } = await village(2);
  nodes[0]?.engine?.control({ status });
  for (let n = 0; n < 6; n++) expect((await here.ask('/chat/completions', chatBody())).status).toBe(200);
  expect(nodes[1]?.engine?.requests.length).toBe(6);
});

it("an engine's own error reaches the client as it is", async () => {
  const { here, nodes } = await village(2);
  for (const { engine } of nodes) engine?.control({ status: 422 });
  const response = await here.ask('/chat/completions', chatBody());
  expect(response.status).toBe(422);
  expect(await response.text()).toContain('status 422 was asked for');
  expect(nodes.reduce((sum, { engine }) => sum + (engine?.requests.length ?? 0), 0)).toBe(1);
});

it('a stream whose first data never comes is asked of another node', async () => {
  const { here, nodes } = await village(2);
  nodes[0]?.engine?.control({ fault: 'reset-before-head' });
  for (let n = 0; n < 6; n++) {
    const response = await here.ask('/chat/completions', chatBody({}, STREAM));
    expect(await response.text()).toMatch(/\[DONE\]\n\n$/);
  }
});

it('a unary answer that breaks off is asked of another node', async () => {
  const { here, nodes } = await village(2);
  nodes[0]?.engine?.control({ bytes: 500_000, fault: 'close', afterTokens: 1 });
  for (let n = 0; n < 4; n++) {
    const response = await here.ask('/chat/completions', chatBody({ tokens: 50 }));
    expect(response.status).toBe(200);
    await response.text();
  }
});

it('a stream whose engine dies in the middle ends with an error in it and without its end', async () => {
  const { here } = await village(1);
  const response = await here.ask(
    '/chat/completions',
    chatBody({ tokens: 50, tokensPerSecond: 100, fault: 'reset', afterTokens: 10 }, STREAM),
  );
  expect(response.status).toBe(200);
  const text = await response.text();
  expect(text).not.toContain('[DONE]');
  expect(text).toMatch(/data: \{"error":\{[^\n]*"code":"upstream_error"[^\n]*\n\n$/);
});

it('a lost channel is dialled again, and the answer continues where it broke off', async () => {
  const { village: all, here, nodes } = await village(1);
  const bytes = 8 * 1024 * 1024;
  const response = await here.ask('/chat/completions', chatBody({ bytes }));
  const hash = createHash('sha256');
  let read = 0;
  let cuts = 0;
  for await (const chunk of response.body ?? []) {
    hash.update(chunk);
    read += chunk.length;
    if (cuts < 3 && read > (cuts + 1) * 2 * 1024 * 1024 && nodes[0] !== undefined) {
      cuts++;
      all.cut(nodes[0]);
    }
  }
  expect(hash.digest('hex')).toBe(patternSha256(bytes));
  expect(all.dialled).toBe(4);
  expect(nodes[0]?.engine?.requests.length).toBe(1);
  await here.accounted(1);
});

it('of two channels, dialled from both ends at once, either may go: requests of both directions continue on the other', async () => {
  const all = new Village();
  const [left, right] = [await all.add({ models: ['m-left'] }), await all.add({ models: ['m-right'] })];
  await all.dial(left, right.session);
  await all.dial(right, left.session);
  const bytes = 4 * 1024 * 1024;
  const ask = (from: Villager, model: string) => from.ask('/chat/completions', { ...chatBody({ bytes }), model });
  const answers = await Promise.all([ask(left, 'm-right'), ask(right, 'm-left')]);
  const read = async (answer: Response) => {
    const hash = createHash('sha256');
    for await (const chunk of answer.body ?? []) hash.update(chunk);
    return hash.digest('hex');
  };
  all.cut(left, 1);
  expect(await Promise.all(answers.map(read))).toEqual([patternSha256(bytes), patternSha256(bytes)]);
  expect(all.dialled).toBe(2);
  for (const { engine } of [left, right]) expect(engine?.requests.length).toBe(1);
});

it.each(['here', 'the node'])(
  'a node that is gone in the middle of a stream is noticed within two seconds if %s had dialled',
  async (dialler) => {
    const { village: all, here, nodes } = await village(1);
    // Redials to a node that had dialled may fail because of its network, so only a port that refuses shows that it is gone.
    if (nodes[0] !== undefined && dialler === 'the node') {
      await all.dial(nodes[0], here.session);
      nodes[0].refusal = await firstConnection([{ host: '127.0.0.1', port: 1 }]).catch((error: Error) => error);
    }
    const response = await here.ask('/chat/completions', chatBody({ tokens: 1000, tokensPerSecond: 20 }, STREAM));
    const reader = response.body?.getReader();
    await reader?.read();
    const goneAt = Date.now();
    await nodes[0]?.kill();
    let text = '';
    for (let next = await reader?.read(); next?.value !== undefined; next = await reader?.read())
      text += Buffer.from(next.value).toString();
    expect(text).toContain('"error"');
    expect(text).not.toContain('[DONE]');
    expect(Date.now() - goneAt).toBeLessThan(promise(2_000));
  },
);

it('a node that falls silent in the middle of a stream is given up after ten seconds; one whose engine is silent is not', async () => {
  const { here, nodes } = await village(2);
  const answers = await Promise.all(
    [0, 1, 2, 3, 4, 5].map(() =>
      here.ask('/chat/completions', chatBody({ tokens: 9, fault: 'stall', afterTokens: 3 }, STREAM)),
    ),
  );
  const [deaf, well] = nodes;
  if (deaf === undefined || well === undefined) throw new Error('no nodes');
  const texts = answers.map((answer) => ({ node: answer.headers.get('x-otela-node'), text: answer.text() }));
  const { serving } = deaf.requests;
  const hear = serving.onFrame.bind(serving);
  const late: (() => void)[] = [];
  serving.onFrame = (channel, frame) => void late.push(() => hear(channel, frame));
  const of = ({ session }: Villager) => texts.filter(({ node }) => node === session).map(({ text }) => text);
  expect(of(deaf).length).toBeGreaterThan(0);
  for (const text of of(deaf)) expect(await text).toMatch(/data: \{"error":\{[^\n]*\n\n$/);
  // The others began at the same time and are silent for at least as long.
  const open = new Promise<string>((resolve) => setTimeout(resolve, 4_000, 'open'));
  for (const text of of(well)) expect(await Promise.race([text, open])).toBe('open');
  // It wakes up: requests that no client waits for any more are not computed.
  serving.onFrame = hear;
  for (const listen of late) listen();
  await eventually('its engine to be free', 5_000, () => (deaf.engine?.running() === 0 ? true : undefined));
});

it('a node that does not acknowledge is left for another one, before it would be left alone', async () => {
  const { village: all, here, nodes } = await village(2);
  const [deaf] = nodes;
  if (deaf === undefined) throw new Error('no node');
  deaf.requests.serving.onFrame = () => {};
  for (let n = 0; n < 6; n++) {
    const askedAt = Date.now();
    expect((await here.ask('/chat/completions', chatBody())).status).toBe(200);
    expect(Date.now() - askedAt).toBeLessThan(promise(SILENT_MS / 2));
  }
  expect(here.silent.length).toBeLessThanOrEqual(1);
  all.cut(deaf); // it never read, so it returned no credit
  deaf.log.length = 0;
});

it('an engine that takes its time gets comments into its stream, and errors come in-band from then on', async () => {
  const all = new Village();
  const here = await all.add({ engine: false, pingMs: 100 });
  await all.add();
  const slow = await here.ask('/chat/completions', chatBody({ delayMs: 500, tokens: 5 }, STREAM));
  const text = await slow.text();
  expect(text).toMatch(/^(: ping\n\n){3,}: otela node=b{26} attempts=1 provider=[a-z0-9@-]+\n\ndata: /);
  expect(text).toMatch(/\[DONE\]\n\n$/);
  const failing = await here.ask('/chat/completions', chatBody({ delayMs: 300, status: 400 }, STREAM));
  expect(failing.status).toBe(200);
  expect(await failing.text()).toMatch(/data: \{"error":\{"message":"[^"]*400/);
});

it('a draining node refuses and the request goes elsewhere; what it had begun is finished', async () => {
  const { here, nodes } = await village(2);
  const [leaver, stayer] = nodes;
  if (leaver === undefined || stayer === undefined) throw new Error('no nodes');
  stayer.reachable = false;
  const begun = await here.ask('/chat/completions', chatBody({ tokens: 20, tokensPerSecond: 40 }, STREAM));
  expect(begun.headers.get('x-otela-node')).toBe(leaver.session);
  stayer.reachable = true;
  const drained = leaver.requests.serving.drain();
  for (let n = 0; n < 4; n++) await (await here.ask('/chat/completions', chatBody())).text();
  expect(leaver.engine?.requests.length).toBe(1);
  expect(await begun.text()).toMatch(/\[DONE\]\n\n$/);
  await drained;
  expect(leaver.requests.serving.inFlight).toBe(0);
});

it('usage that a lost channel held back is said on the next one, and counted once', async () => {
  const { village: all, here, nodes } = await village(1);
  const [node] = nodes;
  const response = await here.ask('/chat/completions', chatBody({ tokens: 7 }, STREAM));
  await response.text();
  if (node !== undefined) all.cut(node);
  await (await here.ask('/chat/completions', chatBody({ tokens: 5 }, STREAM))).text();
  await eventually('both counts', 5_000, () => {
    const names = new Set(here.usage.map(({ requestId }) => requestId));
    return names.size === 2 ? true : undefined;
  });
  expect(here.usage.filter(({ estimated }) => estimated)).toEqual([]);
});
