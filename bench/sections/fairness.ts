/**
 * The effect on others of a key that floods, and of clients that do not read. One key sends four requests a second,
 * open loop. Meanwhile another keeps 256 requests open at an engine with 16 slots, 100 ms each; then sixteen clients
 * request 64 MiB each and read none of it.
 */
import { connect, type Socket } from 'node:net';
import { engineCommand, startAgent } from '../../test/support/agent.ts';
import { Gateway } from '../../test/support/gateway.ts';
import { Managed } from '../../test/support/processes.ts';
import { seeded } from '../../test/support/random.ts';
import { PATH, request, startEngine, warm } from '../bench-cluster.ts';
import { Client, post, type Target } from '../client.ts';
import { MODEL } from '../engine-answers.ts';
import { judged, type Row } from '../report.ts';
import { arrivals, quantile } from '../stats.ts';

const PER_SECOND = 4;
const SERVICE_MS = 100;
const SLOTS = 16;
const FLOOD = 256;
const UNREAD = 16;
const UNREAD_BYTES = 64 * 1024 * 1024;
const SLOTTED = 'stand-in/slots';
/** Maximum added latency: the time of one request, because one running request must end before a slot is free. */
const FLOOD_ADDED_MS = SERVICE_MS;
const UNREAD_ADDED_MS = 5;

export interface Plan {
  seed: number;
  /** Requests of the quiet key in each phase. */
  requests: number;
}

interface Times {
  p50: number;
  p95: number;
}

/** The quiet key's latencies. */
async function quiet(target: Target, bytes: Buffer, { seed, requests }: Plan): Promise<Times> {
  const start = performance.now();
  const times: number[] = [];
  const ask = async (at: number) => {
    await new Promise((resolve) => setTimeout(resolve, start + at - performance.now()));
    const client = new Client(target);
    const timing = await client.ask(bytes);
    client.close();
    if (timing.status !== 200) throw new Error(`the quiet key was answered ${timing.status}`);
    times.push(timing.endMs);
  };
  await Promise.all(arrivals(seeded(seed), PER_SECOND, requests).map(ask));
  return { p50: quantile(times, 0.5), p95: quantile(times, 0.95) };
}

/** Keeps `count` requests open until told to stop; returns how many were answered. */
function flood(target: Target, bytes: Buffer, count: number): () => Promise<number> {
  let going = true;
  let answered = 0;
  const work = async () => {
    const client = new Client(target);
    while (going) {
      const { status } = await client.ask(bytes);
      if (status === 200) answered++;
    }
    client.close();
  };
  const done = Promise.all(Array.from({ length: count }, work));
  return async () => {
    going = false;
    await done;
    return answered;
  };
}

function slotted(target: Target): Buffer {
  const messages = [{ role: 'user', content: 'What is the boiling point of water?' }];
  return post(target, PATH, { model: SLOTTED, messages, stand_in: { delayMs: SERVICE_MS, tokens: 8 } });
}

/** An engine with slots and its agent; `waiting`: how many requests may wait in it. */
async function slottedNode(gateway: Gateway, token: string, waiting: string): Promise<Managed[]> {
  const engine = new Managed(engineCommand(0, '--model', SLOTTED, '--slots', String(SLOTS)), { label: 'slots' });
  const [, engineUrl = ''] = await engine.line(/stand-in engine ready (\S+)/, 15_000);
  const agent = await startAgent({ gateways: [gateway.url], token, engineUrl, args: ['--max-waiting', waiting] });
  await gateway.serving(1, 15_000, SLOTTED);
  return [agent, engine];
}

/** Clients that request much and read nothing. */
async function unread(target: Target): Promise<Socket[]> {
  const bytes = post(target, '/v1/audio/speech', { model: MODEL, input: `[bench bytes ${UNREAD_BYTES}]` });
  const { hostname, port } = new URL(target.url);
  const open = async () => {
    const socket = connect({ host: hostname, port: Number(port) });
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    const began = new Promise((resolve) => socket.once('readable', resolve));
    socket.write(bytes);
    await began;
    return socket;
  };
  return Promise.all(Array.from({ length: UNREAD }, open));
}

const at = `${PER_SECOND} requests/s of one key`;

function row(what: string, alone: Times, times: Times, note: string): Omit<Row, 'required' | 'met'> {
  const tail = `p95 ${alone.p95.toFixed(1)} → ${times.p95.toFixed(1)} ms`;
  return {
    what,
    at,
    direct: alone.p50,
    gateway: times.p50,
    value: times.p50 - alone.p50,
    unit: 'ms',
    note: `${tail}; ${note}`,
  };
}

async function flooded(gateway: Gateway, token: string, plan: Plan): Promise<Row[]> {
  const [key, floodKey] = await Promise.all([gateway.createKey('quiet'), gateway.createKey('flood')]);
  const target = { url: gateway.url, key };
  const rows: Row[] = [];
  for (const waiting of ['none', '8']) {
    const node = await slottedNode(gateway, token, waiting);
    const alone = await quiet(target, slotted(target), plan);
    const flooding = { url: gateway.url, key: floodKey };
    const stop = flood(flooding, slotted(flooding), FLOOD);
    await new Promise((resolve) => setTimeout(resolve, 2_000)); // Until the flood has its full effect.
    const startedAt = performance.now();
    const times = await quiet(target, slotted(target), plan);
    const seconds = (performance.now() - startedAt) / 1_000 + 2;
    const note = `the flood had ${Math.round((await stop()) / seconds)} answers/s of ${(SLOTS * 1_000) / SERVICE_MS}`;
    const made = row(`added to the median by a flood of ${FLOOD}, --max-waiting ${waiting}`, alone, times, note);
    rows.push(waiting === '8' ? judged(made, { most: FLOOD_ADDED_MS }) : made);
    for (const one of node) await one.stop();
    await gateway.serving(0, 30_000, SLOTTED);
  }
  return rows;
}

async function slowReaders(gateway: Gateway, token: string, plan: Plan): Promise<Row> {
  const engine = await startEngine();
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url });
  await gateway.serving(1, 15_000, MODEL);
  const key = await gateway.createKey('reads');
  const target = { url: gateway.url, key };
  await warm(target, 200);
  const alone = await quiet(target, request(target, 'unary'), plan);
  const sockets = await unread({ url: gateway.url, key: await gateway.createKey('does not read') });
  await new Promise((resolve) => setTimeout(resolve, 2_000)); // Until every window on the path is full.
  const times = await quiet(target, request(target, 'unary'), plan);
  for (const socket of sockets) socket.destroy();
  const note = 'all over one tunnel';
  return judged(row(`added to the median by ${UNREAD} clients that read nothing`, alone, times, note), {
    most: UNREAD_ADDED_MS,
  });
}

export async function fairness(plan: Plan): Promise<Row[]> {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  return [...(await flooded(gateway, token, plan)), await slowReaders(gateway, token, plan)];
}
