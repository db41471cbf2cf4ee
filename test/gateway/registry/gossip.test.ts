import { env } from 'cloudflare:workers';
import { afterEach, expect, test } from 'vitest';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { helloMessage } from '../../../shared/lattice/session-id.ts';
import { readFrames } from '../../../shared/wire/frame-codec.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { patience } from '../../support/patience.ts';
import { evictDurableObject } from '../support/durable.ts';
import { seedToken, TestAgent } from './agent.ts';
import { messageOf, openGossipSocket, TestDelegate } from './delegate.ts';

const registry = () => env.REGISTRY.getByName('registry');
const delegates: TestDelegate[] = [];
afterEach(() => {
  for (const delegate of delegates.splice(0)) delegate.close();
});

async function joined(cluster: string): Promise<TestAgent> {
  return TestAgent.join((await seedToken({ cluster })).token);
}

async function delegate(cluster: string): Promise<TestDelegate> {
  const agent = await joined(cluster);
  await agent.publish();
  const made = await TestDelegate.join(agent);
  delegates.push(made);
  made.say(agent.words());
  return made;
}

async function shown(session: string): Promise<RegistryEntry | undefined> {
  return (await registry().snapshot(null))?.entries.find((entry) => entry.session === session);
}

async function until<T>(what: string, look: () => T | undefined | Promise<T | undefined>): Promise<T> {
  const deadline = Date.now() + patience();
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (Date.now() > deadline) throw new Error(`${what}: it never came`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test('what comes up a tunnel of one cluster is told to the delegates of another at once', async () => {
  const there = await delegate('alps');
  const here = await joined('euler');
  await here.publish(here.words('SERVING', { region: 'zurich' }));
  const entry = await until('the news', () => there.replica.get(here.session));
  expect(entry.payload?.region).toBe('zurich');
});

test('what only gossip tells is shown, and not routed to: its tunnel is not here', async () => {
  const there = await delegate('alps');
  const unseen = await joined('alps');
  const words = unseen.words();
  const { bytes } = unseen.ticket;
  const { decodeUpdate } = await import('../../../shared/lattice/registry-update.ts');
  const update = decodeUpdate(words);
  there.handle({ type: 'local', updates: [update.kind === 'entry' ? { ...update, ticket: bytes } : update] });
  const entry = await until('the entry', () => shown(unseen.session));
  expect(entry).toMatchObject({ state: 'SERVING', connected: false });
});

test('an eviction reaches the delegates', async () => {
  const there = await delegate('alps');
  const { id, token } = await seedToken({ cluster: 'euler' });
  const doomed = await TestAgent.join(token);
  await doomed.publish();
  await until('the news', () => there.replica.get(doomed.session));
  await registry().revokeToken(id, true);
  await until('the eviction', () => (there.replica.get(doomed.session)?.state === 'LEFT' ? true : undefined));
});

test('the object sleeps with the sockets open, and goes on where it was', async () => {
  const there = await delegate('alps');
  const lost = await joined('alps');
  await lost.publish();
  await registry().closed(lost.session);
  await new Promise((resolve) => setTimeout(resolve, 2_000)); // the storage write happens later
  await evictDurableObject(registry(), { webSockets: 'hibernate' });
  expect(await registry().ready()).toMatchObject({ delegates: 1 });
  expect(await shown(lost.session)).toMatchObject({ suspected: true, connected: false });
  expect(await shown(there.agent.session)).toMatchObject({ suspected: false, connected: true });
  const here = await joined('euler');
  await here.publish();
  await until('the news', () => there.replica.get(here.session));
});

test('a copied ticket opens no channel, nor a signature that was made for a tunnel', async () => {
  const agent = await joined('alps');
  const thief = new TestAgent(agent.ticket, (await joined('alps')).signer);
  for (const wrong of [await TestDelegate.open(thief), await TestDelegate.open(agent, 'gateway.test')]) {
    expect(await wrong.closed).toMatchObject({ code: 4004 });
  }
  expect((await registry().ready()).delegates).toBe(0);
});

test('the newest socket of a session wins: an older one is closed', async () => {
  const first = await delegate('alps');
  const second = await TestDelegate.join(first.agent);
  delegates.push(second);
  expect(await first.closed).toMatchObject({ code: 4001 });
  const late = await TestDelegate.open(first.agent, undefined, 1);
  expect(await late.closed).toMatchObject({ code: 4001 });
  expect((await registry().ready()).delegates).toBe(1);
});

test('a session that left opens no channel', async () => {
  const agent = await joined('alps');
  await agent.publish();
  await agent.publish(agent.words('LEFT'));
  await until('the door knows', async () => ((await openGossipSocket(agent)).status === 410 ? true : undefined));
});

test.each([
  ['text', 'otela?'],
  ['a frame of a tunnel', messageOf({ type: 'end', stream: 1, offset: 0 })],
  ['half a frame', messageOf({ type: 'gossip', bytes: new Uint8Array(100) }).subarray(0, 50)],
  ['gossip that is none', messageOf({ type: 'gossip', bytes: new Uint8Array(100).fill(255) })],
])('%s ends the channel, and nothing else', async (_, bytes) => {
  const [wrong, other] = [await delegate('alps'), await delegate('alps')];
  wrong.raw(bytes);
  expect(await wrong.closed).toMatchObject({ code: 4002 });
  const here = await joined('euler');
  await here.publish();
  await until('the news', () => other.replica.get(here.session));
});

test('a flood of gossip ends its channel', async () => {
  const wrong = await delegate('alps');
  const bytes = new Uint8Array(60_000).fill(7);
  for (let n = 0; n < 200; n++) wrong.raw(messageOf({ type: 'gossip', bytes }));
  expect((await wrong.closed).code).toBe(4002);
});

test('settled nodes cost the registry at most twelve messages a minute, and the tunnels none', async () => {
  // Three delegates have sockets; the other nodes' tunnels are known from their objects, which send nothing while
  // nothing happens.
  const { token } = await seedToken({ cluster: 'large' });
  const nodes = await Promise.all(Array.from({ length: 47 }, () => TestAgent.join(token)));
  for (const node of nodes) await node.publish();
  for (let n = 0; n < 3; n++) await delegate('large');
  expect((await registry().ready()).sessions).toBeGreaterThanOrEqual(50);
  // Replicas are compared once, with many messages.
  await until('quiet', async () => ((await counted(6)).messages <= 3 ? true : undefined));
  // Each of three delegates pings every 15 s: at most twice within 20 s.
  const cost = await counted(20);
  expect(cost.messages).toBeLessThanOrEqual(6);
  expect(cost.words).toBe(0);
  expect(cost.probes).toBe(0);
  expect(cost.alarms).toBeLessThanOrEqual(1);
  expect(cost.timers).toBe(0); // a pending timer would keep the object awake
});

/** Counts of the registry object over `seconds`. It is read often, because counters restart after the object slept. */
async function counted(seconds: number) {
  const sum = { messages: 0, words: 0, probes: 0, alarms: 0, timers: 0 };
  let last = await registry().ready();
  for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    const now = await registry().ready();
    const woke = now.snapshots < last.snapshots || now.messages < last.messages || now.words < last.words;
    for (const name of ['messages', 'words', 'probes', 'alarms', 'timers'] as const)
      sum[name] += woke ? now[name] : now[name] - last[name];
    last = now;
  }
  return sum;
}

test('knocks with one copied ticket do not push out an agent that is about to answer', async () => {
  const honest = await joined('alps');
  const copied = await joined('euler');
  const { webSocket } = await openGossipSocket(honest);
  if (webSocket === null) throw new Error('no upgrade');
  const frames: Frame[] = [];
  webSocket.addEventListener('message', async ({ data }) => {
    const bytes = data instanceof Blob ? await data.arrayBuffer() : data;
    if (typeof bytes !== 'string') readFrames(new Uint8Array(bytes), (frame) => frames.push(frame));
  });
  const closed = new Promise<number>((resolve) => webSocket.addEventListener('close', ({ code }) => resolve(code)));
  webSocket.accept();
  const challenge = await until('the challenge', () => frames.find(({ type }) => type === 'challenge'));
  if (challenge.type !== 'challenge') throw new Error('another frame');
  const knocks = await Promise.all(Array.from({ length: 200 }, () => openGossipSocket(copied)));
  for (const knock of knocks) knock.webSocket?.accept();
  const message = helloMessage(honest.session, 1, challenge.nonce, 'gossip:gateway.test');
  const { publicKey } = honest.signer;
  const signature = honest.signer.sign(message);
  webSocket.send(messageOf({ type: 'hello', publicKey, signature, generation: 1, window: 0 }));
  const welcome = until('the welcome', () => frames.find(({ type }) => type === 'welcome'));
  expect(await Promise.race([welcome, closed])).toMatchObject({ type: 'welcome' });
  for (const knock of knocks) knock.webSocket?.close(1000, 'done');
  webSocket.close(1000, 'done');
});
