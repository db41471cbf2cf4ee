/**
 * The transport of a blob: a separate connection, as implemented, or a stream on the mesh's channel beside the streams
 * of requests. Two processes with the agent's handshake, TLS and channels; no disk, no SHA-256. A token is sent over
 * the channel every 20 ms, and its time from process to process is measured. Alternating, each `--mib 256`, `--rounds
 * 5`: tokens alone, blob on its own connection, blob on the channel. Prints throughput, processor time of both ends per
 * GiB, and the tokens' delay. Exit code 1: the separate connection delays tokens more than the channel does.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import * as z from 'zod';
import type { ProvenConnection } from '../../agent/mesh/channel/accept-channel.ts';
import { Channel, type ChannelEvents } from '../../agent/mesh/channel/channel.ts';
import { Listener } from '../../agent/mesh/channel/channel-listener.ts';
import { sessionContext } from '../../agent/mesh/channel/channel-tls.ts';
import { dialChannel } from '../../agent/mesh/channel/dial-channel.ts';
import { SEND_CHUNK_BYTES } from '../../agent/weights/weights-server.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { OutboundStream } from '../../shared/wire/outbound-stream.ts';
import { DATA_MAX_BYTES, STREAM_WINDOW_MAX_BYTES } from '../../shared/wire/protocol-constants.ts';
import { identity, NO_RELEASES, openTicket } from '../../test/agent/mesh/node.ts';
import { atEnd, endAll } from '../../test/support/processes.ts';
import { median, quantile } from '../stats.ts';

const WAYS = ['tokens', 'own', 'channel'] as const;
type Way = (typeof WAYS)[number];
const MIB = 2 ** 20;
const NS_PER_MS = 1e6;
const TOKEN_EVERY_MS = 20;
const TOKEN_BYTES = 8;
/** Streams that the acceptor opens. */
const TOKENS = 2;
const BLOB = 4;
/** Credit is returned after this many bytes. */
const CREDIT_BYTES = 128 * 1024;
/** Duration without any blob. */
const QUIET_MS = 3_000;

const { values } = parseArgs({
  options: { mib: { type: 'string', default: '256' }, rounds: { type: 'string', default: '5' } },
});
const BYTES = Number(values.mib) * MIB;
const orderSchema = z.object({ way: z.enum(WAYS), bytes: z.number() });
const toldSchema = z.union([z.object({ port: z.number() }), z.object({ cpu_ms: z.number() })]);

const own = identity();
const credentials = { context: sessionContext(own), ticket: own.ticket, releases: NO_RELEASES };
const cpuMs = (since?: NodeJS.CpuUsage) => {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1000;
};

function eventsOf(onFrame: ChannelEvents['onFrame']): ChannelEvents {
  const fail = (reason: unknown) => {
    throw new Error(`the channel broke: ${String(reason)}`);
  };
  return {
    onGossip: () => {},
    onFrame,
    onMessageEnd: () => {},
    onFault: (_, error) => fail(error),
    onClosed: (_, reason, clean) => (clean ? undefined : fail(reason)),
  };
}

/** The child: sends tokens continuously, and blobs when told to. */
async function send(): Promise<void> {
  const chunk = Buffer.alloc(SEND_CHUNK_BYTES, 1);
  const channels: Channel[] = [];
  const sockets: ProvenConnection['socket'][] = [];
  const listener = new Listener({
    own: credentials,
    openTicket,
    onProven: (proven) => {
      const channel = new Channel(
        proven,
        false,
        eventsOf(() => {}),
      );
      channel.start();
      channels.push(channel);
      const tokens = new OutboundStream();
      channel.link.attach(TOKENS, { outgoing: tokens, ending: () => [] });
      setInterval(() => {
        const token = Buffer.alloc(TOKEN_BYTES);
        token.writeBigUInt64BE(process.hrtime.bigint());
        tokens.push(token);
        channel.link.kick(TOKENS);
      }, TOKEN_EVERY_MS);
    },
    onWeights: ({ socket }) => void sockets.push(socket),
  });
  const execute = async (message: unknown) => {
    const { way, bytes } = orderSchema.parse(message);
    const before = process.cpuUsage();
    if (way === 'tokens') await delay(QUIET_MS);
    if (way === 'own')
      for (let left = bytes; left > 0; left -= chunk.length)
        if (sockets[0]?.write(chunk.subarray(0, left)) === false) await once(sockets[0], 'drain');
    if (way === 'channel') await overChannel(channels[0], bytes, chunk.subarray(0, DATA_MAX_BYTES));
    process.send?.({ cpu_ms: cpuMs(before) });
  };
  process.on('message', (message) => neverRejects(execute(message)));
  process.send?.({ port: await listener.open('127.0.0.1', 0) });
}

function overChannel(channel: Channel | undefined, bytes: number, chunk: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    const outgoing = new OutboundStream();
    let left = bytes;
    const refill = () => {
      for (; left > 0 && outgoing.unsent < SEND_CHUNK_BYTES; left -= chunk.length)
        outgoing.push(chunk.subarray(0, left));
      if (left <= 0 && !outgoing.ended) outgoing.finish();
    };
    const ending = () => {
      channel?.link.detach(BLOB);
      resolve();
      return [{ type: 'end', stream: BLOB, offset: bytes } as const];
    };
    refill();
    channel?.link.attach(BLOB, { outgoing, refill, ending });
  });
}

function told<T>(child: ChildProcess, read: (message: z.infer<typeof toldSchema>) => T | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const onMessage = (message: unknown) => {
      const value = read(toldSchema.parse(message));
      if (value === undefined) return;
      child.off('message', onMessage);
      resolve(value);
    };
    child.on('message', onMessage);
    child.once('exit', (code) => reject(new Error(`the sender ended with ${code}`)));
  });
}

async function measure(): Promise<boolean> {
  const child = fork(import.meta.filename, [], { env: { ...process.env, OTELA_CARRIER: '1' } });
  atEnd(() => void child.kill('SIGKILL'));
  const port = await told(child, (message) => ('port' in message ? message.port : undefined));
  const to = { own: credentials, openTicket, addresses: [`127.0.0.1:${port}`] };

  let delays: number[] = [];
  let tokens = 0;
  let blob = { has: 0, credited: 0, done: () => {} };
  const channel: Channel = new Channel(
    await dialChannel(to),
    true,
    eventsOf((_, frame) => {
      if (frame.type !== 'data') return;
      const { stream, bytes } = frame;
      channel.link.consumed(bytes.length);
      if (stream === TOKENS) {
        const read = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
        for (let at = 0; at < read.length; at += TOKEN_BYTES)
          delays.push(Number(process.hrtime.bigint() - read.readBigUInt64BE(at)) / NS_PER_MS);
        tokens += bytes.length;
        channel.link.put({ type: 'credit', stream, consumed: tokens, window: STREAM_WINDOW_MAX_BYTES });
        return;
      }
      blob.has += bytes.length;
      if (blob.has - blob.credited >= CREDIT_BYTES) {
        blob.credited = blob.has;
        channel.link.put({ type: 'credit', stream, consumed: blob.has, window: STREAM_WINDOW_MAX_BYTES });
      }
      if (blob.has >= BYTES) blob.done();
    }),
  );
  channel.start();
  const { socket } = await dialChannel({ ...to, purpose: 'weights' });
  socket.setNoDelay(true);
  socket.on('data', (chunk: Buffer) => {
    blob.has += chunk.length;
    if (blob.has >= BYTES) blob.done();
  });

  const turn = async (way: Way) => {
    const came = Promise.withResolvers<void>();
    blob = { has: 0, credited: 0, done: came.resolve };
    delays = [];
    const sender = told(child, (message) => ('cpu_ms' in message ? message.cpu_ms : undefined));
    const before = process.cpuUsage();
    const begun = performance.now();
    child.send({ way, bytes: BYTES });
    if (way !== 'tokens') await came.promise;
    const seconds = (performance.now() - begun) / 1000;
    const sent = await sender;
    return { way, mibPerS: BYTES / MIB / seconds, cpuMs: sent + cpuMs(before), delays };
  };
  const rows: Awaited<ReturnType<typeof turn>>[] = [];
  for (let round = 0; round < Number(values.rounds); round++) for (const way of WAYS) rows.push(await turn(way));
  const round = (value: number) => Number(value.toFixed(2));
  const p99 = (way: Way) =>
    round(
      quantile(
        rows.filter((row) => row.way === way).flatMap((row) => row.delays),
        0.99,
      ),
    );
  const mid = (way: Way, figure: 'mibPerS' | 'cpuMs') =>
    Math.round(median(rows.filter((row) => row.way === way).map((row) => row[figure])));
  const of = (way: Way) => ({
    mib_s: mid(way, 'mibPerS'),
    cpu_ms_per_gib: Math.round((mid(way, 'cpuMs') / (BYTES / MIB)) * 1024),
    token_p99_ms: p99(way),
  });
  console.log(JSON.stringify({ tokens: { token_p99_ms: p99('tokens') }, own: of('own'), channel: of('channel') }));
  return p99('own') <= p99('channel');
}

if (process.env.OTELA_CARRIER === '1') await send();
else {
  const good = await measure();
  await endAll();
  process.exit(good ? 0 : 1);
}
