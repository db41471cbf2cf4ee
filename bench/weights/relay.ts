/**
 * Verifying and relaying, compared with a pipeline of TLS in, SHA-256, TLS out without our code. The relay is a
 * separate process; sender and reader are in this one. Alternating, each round with a new process and an empty disk:
 * `--mib 256 --rounds 5`. Prints the relay's processor time for the blob, which other work on the machine hardly
 * changes, and the wall time. Exit code 1: below 0.6.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { connect, createServer, type TLSSocket } from 'node:tls';
import { parseArgs } from 'node:util';
import * as z from 'zod';
import type { Peers } from '../../agent/weights/peer-directory.ts';
import { WeightsClient } from '../../agent/weights/weights-client.ts';
import { WeightsService } from '../../agent/weights/weights-service.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { PIECE_BYTES } from '../../shared/weights/blob-pieces.ts';
import { hubFolder, sha256 } from '../../test/agent/weights/cluster.ts';
import { selfSigned } from '../../test/support/certificate.ts';
import { atEnd, endAll, temporaryDirectory } from '../../test/support/processes.ts';
import { median } from '../stats.ts';

const REQUIRED = 0.6;
const MIB = 2 ** 20;
const { values } = parseArgs({
  options: { mib: { type: 'string', default: '256' }, rounds: { type: 'string', default: '5' } },
});
const BYTES = Number(values.mib) * MIB;

const orderSchema = z.object({
  kind: z.enum(['ours', 'pipeline']),
  key: z.string(),
  cert: z.string(),
  sender: z.number(),
  source: z.string(),
  directory: z.string(),
});
type Order = z.infer<typeof orderSchema>;
const toldSchema = z.union([z.object({ port: z.number() }), z.object({ cpu_ms: z.number() })]);

/**
 * Names of the three ends, in the form of session ids. Instead of the mesh's handshake, the first bytes of a connection
 * name its dialer.
 */
const [SENDER, RELAY, READER] = ['a'.repeat(26), 'b'.repeat(26), 'c'.repeat(26)];
const nameOf = (session: string) => ({ session, provider: 'lab', cluster: 'alps' });

function peersOf(own: string, ports: Readonly<Record<string, number>>): Peers {
  return {
    self: () => nameOf(own),
    others: () => Object.keys(ports).map(nameOf),
    changedAt: () => 0,
    connect: async (session) => {
      const socket = connect({ port: ports[session] ?? 0, host: '127.0.0.1', rejectUnauthorized: false });
      await once(socket, 'secureConnect');
      socket.setNoDelay(true);
      socket.write(own);
      return socket;
    },
  };
}

async function listen(
  tls: { key: string; cert: string },
  take: (socket: TLSSocket) => Promise<unknown>,
): Promise<number> {
  const server = createServer(tls, (socket) => neverRejects(take(socket)));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => void server.close());
  return (server.address() as AddressInfo).port;
}

async function named(socket: TLSSocket): Promise<string> {
  socket.on('error', () => {});
  await once(socket, 'readable');
  return String(socket.read(26));
}

function weightsOf(peers: Peers, directory: string): WeightsService {
  const config = { directory, limitBytes: 2 ** 50, uploads: 2, rate: undefined, clusters: [] };
  return new WeightsService({ config, peers, env: {}, log: () => {}, pieceBytes: PIECE_BYTES, settleMs: 0 });
}

/** The child: relays one blob, and reports the processor time. */
async function relay(order: Order): Promise<void> {
  const begun = process.cpuUsage();
  const end = () => {
    const { user, system } = process.cpuUsage(begun);
    process.send?.({ cpu_ms: (user + system) / 1000 });
  };
  if (order.kind === 'pipeline') {
    const port = await listen(order, async (out) => {
      const source = connect({ port: order.sender, host: '127.0.0.1', rejectUnauthorized: false });
      source.write('x'.repeat(26));
      const hash = createHash('sha256');
      const verify = new Transform({
        transform: (chunk, _encoding, done) => {
          hash.update(chunk);
          done(null, chunk);
        },
      });
      await pipeline(source, verify, out);
      hash.digest();
      end();
    });
    process.send?.({ port });
    return;
  }
  const weights = weightsOf(peersOf(RELAY, { [SENDER]: order.sender }), order.directory);
  await weights.open();
  const port = await listen(order, async (socket) => weights.serve(socket, nameOf(await named(socket)), () => true));
  process.send?.({ port });
  await weights.pull(order.source);
  while (weights.uploads.active > 0 || weights.uploads.bytes < BYTES)
    await new Promise((resolve) => setTimeout(resolve, 5));
  end();
}

function told<T>(child: ChildProcess, read: (message: z.infer<typeof toldSchema>) => T | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    child.on('message', (message) => {
      const value = read(toldSchema.parse(message));
      if (value !== undefined) resolve(value);
    });
    child.once('exit', (code) => reject(new Error(`the relay ended with ${code}`)));
  });
}

async function measure(): Promise<boolean> {
  const files = selfSigned(await temporaryDirectory('otela-certificate'), 'relay');
  const tls = { key: await readFile(files.key, 'utf8'), cert: await readFile(files.cert, 'utf8') };
  const bytes = randomBytes(BYTES);
  const digest = sha256(bytes);
  const source = `dir:${await hubFolder({ 'model.safetensors': bytes })}`;
  const holder = weightsOf(peersOf(SENDER, {}), await temporaryDirectory('otela-weights'));
  await holder.open();
  await holder.pull(source);
  atEnd(() => holder.close());
  const ports = {
    ours: await listen(tls, async (socket) => holder.serve(socket, nameOf(await named(socket)), () => true)),
    pipeline: await listen(tls, async (socket) => {
      await named(socket);
      for (let at = 0; at < bytes.length; at += MIB)
        if (!socket.write(bytes.subarray(at, at + MIB))) await once(socket, 'drain');
      socket.end();
    }),
  };
  const turn = async (kind: Order['kind']) => {
    const child = fork(import.meta.filename, ['--mib', values.mib], { env: { ...process.env, OTELA_RELAY: '1' } });
    atEnd(() => void child.kill('SIGKILL'));
    const cpu = told(child, (message) => ('cpu_ms' in message ? message.cpu_ms : undefined));
    const port = told(child, (message) => ('port' in message ? message.port : undefined));
    child.send({ kind, ...tls, sender: ports[kind], source, directory: await temporaryDirectory('otela-weights') });
    const relayPort = await port;
    const begun = performance.now();
    let read = 0;
    if (kind === 'ours') {
      const client = new WeightsClient(peersOf(READER, { [RELAY]: relayPort }));
      const wanted = { key: digest, size: BYTES, piece: PIECE_BYTES, from: 0 };
      for await (const chunk of await client.blob(RELAY, wanted, new AbortController().signal)) read += chunk.length;
      client.close();
    } else {
      const socket = connect({ port: relayPort, host: '127.0.0.1', rejectUnauthorized: false });
      for await (const chunk of socket) read += chunk.length;
    }
    if (read < BYTES) throw new Error(`${kind}: ${read} of ${BYTES} bytes came`);
    const seconds = (performance.now() - begun) / 1000;
    const cpuMs = await cpu;
    child.kill('SIGKILL');
    return { mib_s: BYTES / MIB / seconds, cpu_ms: cpuMs };
  };
  const rows = { ours: [] as { mib_s: number; cpu_ms: number }[], pipeline: [] as { mib_s: number; cpu_ms: number }[] };
  for (let round = 0; round < Number(values.rounds); round++)
    for (const kind of ['ours', 'pipeline'] as const) rows[kind].push(await turn(kind));
  const mid = (kind: keyof typeof rows, figure: 'mib_s' | 'cpu_ms') =>
    Math.round(median(rows[kind].map((row) => row[figure])));
  const report = {
    mib: BYTES / MIB,
    ours: { mib_s: mid('ours', 'mib_s'), cpu_ms: mid('ours', 'cpu_ms') },
    pipeline: { mib_s: mid('pipeline', 'mib_s'), cpu_ms: mid('pipeline', 'cpu_ms') },
    by_clock: Number((mid('ours', 'mib_s') / mid('pipeline', 'mib_s')).toFixed(2)),
    by_processor: Number((mid('pipeline', 'cpu_ms') / mid('ours', 'cpu_ms')).toFixed(2)),
    required: REQUIRED,
  };
  console.log(JSON.stringify(report));
  return report.by_clock >= REQUIRED;
}

if (process.env.OTELA_RELAY === '1')
  process.once('message', (message) => neverRejects(relay(orderSchema.parse(message))));
else {
  const good = await measure();
  await endAll();
  process.exit(good ? 0 : 1);
}
