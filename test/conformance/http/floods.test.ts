/** A provider's node that sends all it can and reads nothing costs the gateway a bounded memory, and others no time. */
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { FRAME_LIMITS } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { NO_USAGE } from '../../../shared/wire/usage.ts';
import { chatBody, type House, openHouse } from '../../support/house.ts';
import { endAll } from '../../support/processes.ts';
import { HandAgent, messageOf } from '../../support/tunnel/hand-agent.ts';
import { admitted } from '../../support/tunnel/identities.ts';

/** One flood lasts so long, or until it is cut off. */
const FLOOD_MS = 1_500;
/** Of which so many bytes are sent at most: what the test's own process can make, and far above any bound. */
const FLOOD_BYTES = 256 * 1024 * 1024;
/** Bursts, kernel buffers and garbage that waits for its collection: 112 MiB was seen. A PROBE flood alone grew it by 553 MiB. */
const GROWTH_MIB = 160;
/**
 * Others' requests meanwhile take so many times as long, in the median, and so much more: flood and gateway share two cores with this
 * process, which makes the one and measures the other.
 */
const OTHERS_FACTOR = 10;
const OTHERS_MS = 150;

let house: House;
/** What a request takes without a flood. */
let quietMs: number;
beforeAll(async () => {
  house = await openHouse();
  await others(new Promise((resolve) => setTimeout(resolve, 500))); // the first ones warm it up
  quietMs = medianOf(await others(new Promise((resolve) => setTimeout(resolve, 1_000))));
});
afterAll(endAll);
afterEach(() => expect(house.gateway.process.running).toBe(true));

const bytes = (length: number) => new Uint8Array(length).fill(7);
const stream = 1_000_000;

/** One frame of each type, as large as it does most harm: small where each has an answer, large where it is kept. */
const FRAMES: { [T in Frame['type']]: (n: number) => Extract<Frame, { type: T }> } = {
  open: (n) => ({
    type: 'open',
    stream: n + 1,
    resume: false,
    requestId: `flood-${n}`,
    attempt: 1,
    answerOffset: 0,
    endpoint: 1,
    headers: [],
    edits: [],
    streaming: false,
    dropUsage: false,
    firstByteMs: 0,
    stallMs: 0,
    receipt: '',
    bodyLength: 0,
  }),
  accept: (n) => ({ type: 'accept', stream: stream + n, bodyOffset: 0, bodyDone: true }),
  head: (n) => ({
    type: 'head',
    stream: stream + n,
    status: 200,
    engineTenths: 0,
    headers: [['x', 'v'.repeat(8_000)]],
  }),
  data: (n) => ({ type: 'data', stream: stream + n, offset: 0, bytes: bytes(1) }),
  end: (n) => ({ type: 'end', stream: stream + n, offset: 0 }),
  reset: (n) => ({ type: 'reset', stream: stream + n, code: 'unknown', message: 'm'.repeat(500) }),
  credit: (n) => ({ type: 'credit', stream: stream + n, consumed: 0, window: 1 }),
  report: (n) => ({
    type: 'report',
    stream: stream + n,
    usage: NO_USAGE,
    name: { requestId: `flood-${n}`, attempt: 1, receipt: 'r'.repeat(900) },
  }),
  settled: () => ({ type: 'settled', streams: Array.from({ length: 1_000 }, (_, at) => at) }),
  record: (n) => ({ type: 'record', sequence: n, update: bytes(16_000) }),
  recorded: (n) => ({ type: 'recorded', sequence: n }),
  challenge: () => ({ type: 'challenge', nonce: bytes(32) }),
  hello: (n) => ({ type: 'hello', publicKey: bytes(32), signature: bytes(64), generation: n, window: 0 }),
  welcome: () => ({ type: 'welcome', window: 0, gateway: 'g' }),
  gossip: () => ({ type: 'gossip', bytes: bytes(60_000) }),
  probe: (n) => ({ type: 'probe', nonce: n, session: 'a'.repeat(26) }),
  probed: (n) => ({ type: 'probed', nonce: n, verdict: 'alive' }),
  usage: (n) => ({ type: 'usage', sequence: n, json: '[]' }),
  stored: (n) => ({ type: 'stored', sequence: n }),
  load: (n) => ({ type: 'load', running: n % 100, waiting: n % 7 }),
  rate: (n) => ({ type: 'rate', tokensPerSecond: n % 1_000 }),
  circuit: () => ({ type: 'circuit', name: '0'.repeat(32) }),
  deploy: (n) => ({ type: 'deploy', sequence: n, order: bytes(16_000) }),
  deployed: (n) => ({ type: 'deployed', sequence: n, json: '{}' }),
  prefixes: (n) => ({ type: 'prefixes', of: stream + n, blocks: bytes(32 * 1_024) }),
};

/** A message of some 128 KiB with frames of one type, sent again and again: what makes new ones would take the time of this process. */
function messageOfAll(type: Frame['type']): Uint8Array {
  const one = messageOf(FRAMES[type](0)).length;
  const frames = Array.from({ length: Math.min(20_000, Math.ceil((128 * 1024) / one)) }, (_, n) => FRAMES[type](n));
  return messageOf(...frames);
}

/** Messages of agents, or the WebSocket's own pings, which it answers by itself. */
type Flood = Frame['type'] | 'WebSocket pings';

/** Floods for FLOOD_MS without reading, with a new socket when one is cut off. Gives the bytes that went out, and the sockets. */
async function flood(type: Flood): Promise<{ sent: number; sockets: number }> {
  const identity = await admitted(house.gateway.url, house.token);
  const message = type === 'WebSocket pings' ? bytes(125) : messageOfAll(type);
  const until = performance.now() + FLOOD_MS;
  let [sent, sockets] = [0, 0];
  while (performance.now() < until) {
    const agent = new HandAgent({ url: new URL(house.gateway.url) }, identity);
    const { nonce } = await agent.when('challenge');
    agent.send(agent.hello(nonce, ++sockets));
    await agent.when('welcome');
    agent.socket.pause();
    while (performance.now() < until && agent.socket.readyState === agent.socket.OPEN && sent < FLOOD_BYTES) {
      if (type === 'WebSocket pings') for (let n = 0; n < 1_000; n++) agent.socket.ping(message);
      else agent.sendRaw(message);
      sent += message.length * (type === 'WebSocket pings' ? 1_000 : 1);
      // Its own memory is not under test: what the gateway does not take waits for it.
      while (agent.socket.bufferedAmount > 4 * Math.max(message.length, 128 * 1024) && performance.now() < until)
        await new Promise((resolve) => setTimeout(resolve, 1));
      await new Promise((resolve) => setImmediate(resolve));
    }
    // A close that waits behind what was not read.
    agent.socket.resume();
    await Promise.race([agent.closed, new Promise((resolve) => setTimeout(resolve, 100))]);
    agent.socket.terminate();
  }
  return { sent, sockets };
}

/** What others' requests take, until `done`. */
async function others(done: Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  let over = false;
  void done.finally(() => {
    over = true;
  });
  while (!over) {
    const at = performance.now();
    const response = await house.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
    await response.text();
    expect(response.status).toBe(200);
    times.push(performance.now() - at);
  }
  return times;
}

function medianOf(times: readonly number[]): number {
  return times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)] ?? Number.NaN;
}

it.each<Flood>([...(Object.keys(FRAME_LIMITS) as Frame['type'][]), 'WebSocket pings'])('%s', async (type) => {
  const before = house.gateway.memoryMib();
  const flooding = flood(type);
  const times = await others(flooding);
  const { sent, sockets } = await flooding;
  const grown = house.gateway.memoryMib() - before;
  const median = medianOf(times);
  const mib = Math.round(sent / 1024 / 1024);
  console.log(
    `${type}: ${mib} MiB on ${sockets} sockets, ${grown.toFixed(0)} MiB grown, others ${median.toFixed(1)} ms`,
  );
  expect(grown).toBeLessThan(GROWTH_MIB);
  expect(median, `${quietMs} ms without a flood`).toBeLessThan(OTHERS_FACTOR * quietMs + OTHERS_MS);
});
