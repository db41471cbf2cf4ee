/**
 * Through a real NAT with 20 ms each way (test/netns): the agent and the engine behind it, the client outside. The line
 * itself is measured first, in the same run: a TCP echo for the round trip, a plain TCP copy for the throughput, on
 * connections dialed out like the agent's.
 */
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { GATEWAY_ADDRESS, Network, on } from '../../test/netns/network.ts';
import { cannotRun } from '../../test/support/abilities.ts';
import { startAgent } from '../../test/support/agent.ts';
import { Gateway } from '../../test/support/gateway.ts';
import { Managed } from '../../test/support/processes.ts';
import { NODE, ROOT } from '../../test/support/where.ts';
import { request, startEngine, warm } from '../bench-cluster.ts';
import { Client, post, type Target } from '../client.ts';
import { MODEL } from '../engine-answers.ts';
import { judged, type Row } from '../report.ts';
import { median, repeated } from '../stats.ts';

const DELAY_MS = 20;
const BODY_BYTES = 200 * 1024 * 1024;
const TTFT_ADDED_MS = 1;
const RATIO = 0.84;
const OUTSIDE = '198.51.100.254';
const HOST = 'c1h1';
/** As many as the requirements on loopback begin with, so that the same code is compiled. */
const WARM_REQUESTS = 4_000;

export interface Plan {
  repeats: number;
  requests: number;
  /** Size of the transferred bodies; 0: none is transferred, and there are no rows for them. */
  bodyBytes?: number;
}

/** A connection dialed out of the cluster to this machine; the far end does what `role` says (see bench/far-end.ts). */
async function dialledOut(role: string, bytes: number): Promise<{ socket: Socket; end: Managed }> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, OUTSIDE, resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const arrived = new Promise<Socket>((resolve) => server.once('connection', resolve));
  const command = [...on(HOST), NODE, join(ROOT, 'bench/far-end.ts'), OUTSIDE, String(port), role, String(bytes)];
  const end = new Managed(command, { label: `far end (${role})` });
  const socket = await arrived;
  socket.setNoDelay(true);
  server.close();
  return { socket, end };
}

/** Median round trip in ms of a small message. */
async function roundTrip(count: number): Promise<number> {
  const { socket, end } = await dialledOut('echo', 0);
  const times: number[] = [];
  for (let n = 0; n < count; n++) {
    const start = performance.now();
    socket.write('x'.repeat(600));
    await new Promise((resolve) => socket.once('data', resolve));
    times.push(performance.now() - start);
  }
  socket.destroy();
  await end.stop();
  return median(times);
}

/** Bytes per second of a plain TCP copy, out of the cluster (`source`) or into it (`sink`). */
async function plainTcp(role: 'source' | 'sink', bytes: number): Promise<number> {
  const { socket, end } = await dialledOut(role, bytes);
  const start = performance.now();
  if (role === 'source') {
    let left = bytes;
    socket.write('go');
    await new Promise<void>((resolve) => {
      socket.on('data', (piece) => {
        left -= piece.length;
        if (left <= 0) resolve();
      });
    });
  } else {
    const block = Buffer.alloc(256 * 1024);
    for (let left = bytes; left > 0; left -= block.length) {
      if (!socket.write(left >= block.length ? block : block.subarray(0, left)))
        await new Promise((resolve) => socket.once('drain', resolve));
    }
    // The far end sends one byte when it has everything.
    await new Promise((resolve) => socket.once('data', resolve));
  }
  const seconds = (performance.now() - start) / 1000;
  socket.destroy();
  await end.stop();
  return bytes / seconds;
}

/** Bytes per second of an engine's response of this size, to the client. */
export async function download(target: Target, bytes: number): Promise<number> {
  const client = new Client(target);
  const start = performance.now();
  const timing = await client.ask(post(target, '/v1/audio/speech', { model: MODEL, input: `[bench bytes ${bytes}]` }));
  client.close();
  if (timing.status !== 200 || !timing.complete)
    throw new Error(`download: ${timing.status}, ${timing.bodyBytes} bytes`);
  return bytes / ((performance.now() - start) / 1000);
}

/** Bytes per second of an opaque body of this size, from the client to the engine. */
export async function upload(target: Target, bytes: number): Promise<number> {
  const { request: send } = await import('node:http');
  const start = performance.now();
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${target.key}`,
      'content-type': 'application/octet-stream',
      'content-length': bytes,
      'x-otela-model': MODEL,
    };
    const upload = send(
      `${target.url}/v1/audio/transcriptions`,
      { method: 'POST', headers, agent: false },
      (response) => {
        response.resume().once('end', () => {
          if (response.statusCode === 200) resolve(bytes / ((performance.now() - start) / 1000));
          else reject(new Error(`upload: ${response.statusCode}`));
        });
      },
    );
    upload.once('error', reject);
    const block = Buffer.alloc(256 * 1024, 'x');
    const write = async () => {
      for (let left = bytes; left > 0 && !upload.destroyed; left -= block.length) {
        if (!upload.write(left >= block.length ? block : block.subarray(0, left)))
          await new Promise((next) => upload.once('drain', next));
      }
      upload.end();
    };
    neverRejects(write());
  });
}

async function ttft(target: Target, count: number): Promise<number> {
  const client = new Client(target);
  const bytes = request(target, 'stream 4 0', { stream: true });
  const times: number[] = [];
  for (let n = 0; n < count + 3; n++) {
    const timing = await client.ask(bytes);
    if (timing.status !== 200) throw new Error(`status ${timing.status}`);
    if (n >= 3) times.push(timing.firstMs);
  }
  client.close();
  return median(times);
}

/** Returns the rows, or the reason why nothing was measured. */
export async function wide(plan: Plan): Promise<Row[] | string> {
  const reason = cannotRun('netns');
  if (reason !== undefined) return reason;
  const bytes = plan.bodyBytes ?? BODY_BYTES;
  await Network.up({ delayMs: DELAY_MS });
  const gateway = await Gateway.start({ prefix: on('gateway'), host: '0.0.0.0', publicHost: GATEWAY_ADDRESS });
  const [key, token] = await Promise.all([gateway.createKey('bench'), gateway.createJoinToken()]);
  const engine = await startEngine(on(HOST));
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, prefix: on(HOST) });
  await gateway.serving(1);
  const through: Target = { url: gateway.url, key };
  await warm(through, bytes === 0 && plan.repeats === 1 ? 64 : WARM_REQUESTS);
  const added: number[] = [];
  const trips: number[] = [];
  const times: number[] = [];
  const rates = { down: [] as number[], up: [] as number[], plainDown: [] as number[], plainUp: [] as number[] };
  for (let n = 0; n < plan.repeats; n++) {
    trips.push(await roundTrip(plan.requests));
    times.push(await ttft(through, plan.requests));
    added.push((times.at(-1) ?? Number.NaN) - (trips.at(-1) ?? Number.NaN));
    if (bytes === 0) continue;
    rates.plainDown.push(await plainTcp('source', bytes));
    rates.down.push(await download(through, bytes));
    rates.plainUp.push(await plainTcp('sink', bytes));
    rates.up.push(await upload(through, bytes));
  }
  const at = `NAT, ${DELAY_MS} ms each way`;
  const spread = repeated(added);
  const body = (what: string, plain: number[], own: number[]): Row => {
    const ratio = repeated(own.map((value, n) => value / (plain[n] ?? Number.NaN)));
    const mib = (values: number[]) => median(values) / 1024 / 1024;
    return judged(
      {
        what,
        at,
        direct: mib(plain),
        gateway: mib(own),
        value: ratio.median,
        unit: 'of plain TCP',
        spread: [ratio.least, ratio.most],
        note: 'direct and gateway in MiB/s',
      },
      { least: RATIO },
    );
  };
  const bodies = () => [
    body(`${bytes / 1024 / 1024} MiB from the engine`, rates.plainDown, rates.down),
    body(`${bytes / 1024 / 1024} MiB to the engine`, rates.plainUp, rates.up),
  ];
  return [
    judged(
      {
        what: 'added TTFT over the round trip',
        at,
        direct: median(trips),
        gateway: median(times),
        value: spread.median,
        unit: 'ms',
        spread: [spread.least, spread.most],
      },
      { most: TTFT_ADDED_MS },
    ),
    ...(bytes === 0 ? [] : bodies()),
  ];
}
