/**
 * A provider's node that sends all it can and reads nothing costs the gateway bounded memory, and does not delay other
 * requests.
 */
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { FRAME_LIMITS } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { NO_USAGE } from '../../../shared/wire/reported-usage.ts';
import { INSPECTED, retainedMib } from '../../support/heap.ts';
import { promise } from '../../support/patience.ts';
import { endAll } from '../../support/processes.ts';
import { chatBody, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';
import { HandAgent, messageOf } from '../../support/tunnel/hand-agent.ts';
import { admitted } from '../../support/tunnel/identities.ts';

/**
 * The minimum length of one flood. On a slow machine it lasts until FLOOD_LEAST_BYTES are sent, but at most
 * FLOOD_LONGEST_MS.
 */
const FLOOD_MS = 1_500;
const FLOOD_LEAST_BYTES = 32 * 1024 * 1024;
const FLOOD_LONGEST_MS = 10_000;
/**
 * Upper bound on the bytes of one flood: what the test's process can produce, and far above any bound in the gateway.
 */
const FLOOD_BYTES = 256 * 1024 * 1024;
/**
 * Bound on the memory that the gateway keeps of a flood, after a full collection, while the sender still reads nothing:
 * responses that wait for the sender, and what the frames' limits let through. 4.7 MiB was seen. Without the limits
 * most of a flood is kept. Garbage does not count, because its amount only shows how busy the machine is.
 */
const KEPT_MIB = 16;
/**
 * During a flood, the median time of other requests may be at most this many times the time during a flood of the same
 * bytes in frames that are refused unread. That baseline is the cost of this process, which makes the flood and
 * measures the other requests on the same two cores.
 */
const OTHERS_FACTOR = 10;
const OTHERS_MS = promise(50);

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster({ gateway: { env: INSPECTED } });
  await others(new Promise((resolve) => setTimeout(resolve, 500))); // the first requests warm it up
});
afterAll(endAll);
afterEach(() => expect(cluster.gateway.process.running).toBe(true));

const bytes = (length: number) => new Uint8Array(length).fill(7);
const stream = 1_000_000;

/**
 * One frame of each type, of the size that does the most harm: small if each frame gets an answer, large if the gateway
 * keeps it.
 */
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

/**
 * A message of about 128 KiB with frames of one type, sent repeatedly: building new ones would use this process's time.
 */
function messageOfAll(type: Frame['type']): Uint8Array {
  const one = messageOf(FRAMES[type](0)).length;
  const frames = Array.from({ length: Math.min(20_000, Math.ceil((128 * 1024) / one)) }, (_, n) => FRAMES[type](n));
  return messageOf(...frames);
}

/** Messages of agents, or the WebSocket's own pings, which the WebSocket answers without the gateway's code. */
type Flood = Frame['type'] | 'WebSocket pings';

interface Flooded {
  sent: number;
  sockets: number;
  /** Retained by the gateway after the last bytes were sent. */
  keptMib: number;
}

/** Floods for FLOOD_MS without reading, and opens a new socket each time one is cut off. */
async function flood(type: Flood): Promise<Flooded> {
  const identity = await admitted(cluster.gateway.url, cluster.token);
  const message = type === 'WebSocket pings' ? bytes(125) : messageOfAll(type);
  const from = performance.now();
  let [sent, sockets, keptMib] = [0, 0, 0];
  const lasts = () => {
    const ms = performance.now() - from;
    return ms < FLOOD_MS || (sent < FLOOD_LEAST_BYTES && ms < FLOOD_LONGEST_MS);
  };
  while (lasts()) {
    const agent = new HandAgent({ url: new URL(cluster.gateway.url) }, identity);
    const { nonce } = await agent.when('challenge');
    agent.send(agent.hello(nonce, ++sockets));
    await agent.when('welcome');
    agent.socket.pause();
    while (lasts() && agent.socket.readyState === agent.socket.OPEN && sent < FLOOD_BYTES) {
      if (type === 'WebSocket pings') for (let n = 0; n < 1_000; n++) agent.socket.ping(message);
      else agent.sendRaw(message);
      sent += message.length * (type === 'WebSocket pings' ? 1_000 : 1);
      // The memory of this process is not under test: it holds the data that the gateway has not accepted.
      while (agent.socket.bufferedAmount > 4 * Math.max(message.length, 128 * 1024) && lasts())
        await new Promise((resolve) => setTimeout(resolve, 1));
      await new Promise((resolve) => setImmediate(resolve));
    }
    keptMib = Math.max(keptMib, await retainedMib(cluster.gateway.process));
    // A close may wait after the unread data.
    agent.socket.resume();
    await Promise.race([agent.closed, new Promise((resolve) => setTimeout(resolve, 100))]);
    agent.socket.terminate();
  }
  return { sent, sockets, keptMib };
}

/** Times of other requests until `done`, in milliseconds. */
async function others(done: Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  let over = false;
  neverRejects(
    done.finally(() => {
      over = true;
    }),
  );
  while (!over) {
    const at = performance.now();
    const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
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
  const before = await retainedMib(cluster.gateway.process);
  const flooding = flood(type);
  const median = medianOf(await others(flooding));
  const { sent, sockets, keptMib } = await flooding;
  const kept = keptMib - before;
  const mib = Math.round(sent / 1024 / 1024);
  console.log(`${type}: ${mib} MiB on ${sockets} sockets, ${kept.toFixed(1)} MiB kept, others ${median.toFixed(1)} ms`);
  expect(kept).toBeLessThan(KEPT_MIB);
  if (median < OTHERS_MS) return;
  const refused = medianOf(await others(flood('welcome')));
  expect(median, `${refused} ms beside frames that are refused`).toBeLessThan(OTHERS_FACTOR * refused + OTHERS_MS);
});
