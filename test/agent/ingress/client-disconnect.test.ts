import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, describe, expect, it } from 'vitest';
import type { EngineRequest } from '../../support/engine.ts';
import { LEAVERS } from '../../support/leavers.ts';
import { promise } from '../../support/patience.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { dial, patternSha256, postBytes } from '../../support/raw.ts';
import { chatBody } from '../../support/test-cluster.ts';
import { Village, type Villager } from './village.ts';

afterEach(endAll);

const WITHIN_MS = promise(1_000);

/** An ingress without an engine, and a node that has one. */
async function twoHouses(): Promise<{ here: Villager; there: Villager; village: Village }> {
  const village = new Village();
  return { here: await village.add({ engine: false }), there: await village.add(), village };
}

async function abortedAfter(there: Villager, phase: (request: EngineRequest) => boolean, leave: () => Promise<void>) {
  const engine = there.engine;
  if (engine === undefined) throw new Error('no engine there');
  await eventually('the phase', 5_000, () => (engine.requests.some(phase) ? true : undefined));
  const leftAt = Date.now();
  await leave();
  const { abortedAt = Number.POSITIVE_INFINITY } = await engine.when(
    (request) => request.abortedAt !== undefined,
    5_000,
    'the abort',
  );
  return abortedAt - leftAt;
}

describe.each(Object.entries(LEAVERS))('%s', (_, leaver) => {
  const start = (here: Villager, body: Record<string, unknown>) =>
    leaver({ url: here.url.replace(/\/v1$/, ''), key: here.key, body });

  it('before the first byte of a stream', async () => {
    const { here, there } = await twoHouses();
    const asking = await start(here, chatBody({ delayMs: 20_000 }, { stream: true }));
    expect(await abortedAfter(there, (one) => one.bodySha256 !== '', asking.leave)).toBeLessThanOrEqual(WITHIN_MS);
  });

  it('in the middle of a stream', async () => {
    const { here, there } = await twoHouses();
    const asking = await start(here, chatBody({ tokens: 10_000, tokensPerSecond: 20 }, { stream: true }));
    expect(await abortedAfter(there, (one) => one.tokensSent >= 5, asking.leave)).toBeLessThanOrEqual(WITHIN_MS);
    const [record] = await here.accounted(1);
    expect(record).toMatchObject({ aborted: true });
    expect(record?.completion).toBeGreaterThan(0);
  });

  it('while an unary answer is being made', async () => {
    const { here, there } = await twoHouses();
    const asking = await start(here, chatBody({ tokens: 1_000, tokensPerSecond: 20 }));
    expect(await abortedAfter(there, (one) => one.bodySha256 !== '', asking.leave)).toBeLessThanOrEqual(WITHIN_MS);
  });
});

it('a client that leaves while its body is still coming leaves nothing behind', async () => {
  const { here, there } = await twoHouses();
  const socket = await dial(here.url.replace(/\/v1$/, ''));
  const whole = postBytes(`${here.url}/chat/completions`, { authorization: `Bearer ${here.key}` }, chatBody());
  socket.on('error', () => {}).resume();
  socket.write(whole.slice(0, -10));
  socket.end();
  await once(socket, 'close');
  expect((await here.ask('/chat/completions', chatBody())).status).toBe(200);
  expect(there.engine?.requests.length).toBe(1);
});

/** Bytes of buffers that are still referenced. */
function heldBytes(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return process.memoryUsage().arrayBuffers;
}

/** Requests `bytes` bytes and reads none of them. */
async function standStill(here: Villager, bytes: number): Promise<Socket> {
  const socket = await dial(here.url.replace(/\/v1$/, ''));
  socket.on('error', () => {}).pause();
  socket.write(postBytes(`${here.url}/chat/completions`, { authorization: `Bearer ${here.key}` }, chatBody({ bytes })));
  return socket;
}

it('stalled readers hold back only their engine', async () => {
  const { here, there } = await twoHouses();
  const readers = 40;
  const bytes = 16 * 1024 * 1024;
  const before = heldBytes();
  const sockets = await Promise.all(Array.from({ length: readers }, () => standStill(here, bytes)));
  await eventually('the engine to begin', 30_000, () => (there.engine?.running() === readers ? true : undefined));
  for (let n = 0; n < 20; n++) {
    const response = await here.ask('/chat/completions', chatBody({ tokens: 10 }, { stream: true }));
    expect(await response.text()).toMatch(/\[DONE\]\n\n$/);
  }
  // Of the 640 MiB only windows are in memory on the way: engine, node, ingress and the client's socket are all in this
  // process.
  const grownMib = (heldBytes() - before) / 1024 / 1024;
  expect(there.engine?.running()).toBe(readers);
  expect(grownMib).toBeLessThan(readers * 6);
  for (const socket of sockets) socket.destroy();
  await eventually('the engine to be free', 30_000, () => (there.engine?.running() === 0 ? true : undefined));
});

// The village checks at the end of each test that its channels have all their credit.
it('readers that stop reading and disconnect cost the channel no credit', async () => {
  const { here, there, village } = await twoHouses();
  // Together they hold more than the credit that a link may keep back.
  const sockets = await Promise.all(Array.from({ length: 8 }, () => standStill(here, 16 * 1024 * 1024)));
  await eventually('bytes that wait for the readers', 10_000, () => village.pressure(here) > 0.1 || undefined);
  for (const socket of sockets) socket.destroy();
  await eventually('the engine to be free', 10_000, () => (there.engine?.running() === 0 ? true : undefined));
});

it('a reader that stood still gets every byte when it reads on', async () => {
  const { here, village } = await twoHouses();
  const bytes = 16 * 1024 * 1024;
  const pressed = (yes: boolean) =>
    eventually(yes ? 'pressed' : 'relieved', 10_000, () =>
      village.pressure(here) >= 1 / 2 === yes ? true : undefined,
    );
  // The first reader: it has stalled for longest when the channel drops all stalled readers.
  const response = await here.ask('/chat/completions', chatBody({ bytes }));
  const full = pressed(true);
  const others = await Promise.all(Array.from({ length: 20 }, () => standStill(here, bytes)));
  await full;
  await pressed(false);
  const hash = createHash('sha256');
  for await (const chunk of response.body ?? []) hash.update(chunk);
  expect(hash.digest('hex')).toBe(patternSha256(bytes));
  const [record] = await here.accounted(1);
  expect(record, 'it gave way meanwhile').toMatchObject({ repeated: true, complete: true });
  for (const socket of others) socket.destroy();
});
