/** Circuits through a gateway: both ends hold valid tickets and send what they like. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { openGatewayLeg } from '../../agent/mesh/circuit/gateway-circuit.ts';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { helloMessage } from '../../shared/lattice/session-id.ts';
import { encodeFrame, readFrames } from '../../shared/wire/frame-codec.ts';
import { CIRCUIT_FRAME, PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually } from '../support/processes.ts';
import { HandAgent } from '../support/tunnel/hand-agent.ts';
import { admitted, type TestIdentity } from '../support/tunnel/identities.ts';

afterEach(endAll);

/** A gateway, a callee with a tunnel, and a caller. */
async function two(env: Record<string, string> = {}) {
  const gateway = await Gateway.start({ env });
  const url = new URL(gateway.url);
  const token = await gateway.createJoinToken();
  const [callee, caller] = [await admitted(gateway.url, token), await admitted(gateway.url, token)];
  const tunnel = await new HandAgent({ url }, callee, CIRCUIT_FRAME).join(['m']);
  return { url, callee, caller, tunnel };
}

const leg = (gateway: URL, identity: TestIdentity, to: string) =>
  openGatewayLeg({
    gateway,
    to,
    identity,
    ticket: identity.ticket.bytes,
    env: {},
    signal: AbortSignal.timeout(30_000),
  });

/** The circuit at which a caller waits for the callee. */
const called = (tunnel: HandAgent) =>
  eventually('a call', 15_000, () => tunnel.frames.findLast((frame) => frame.type === 'circuit')?.name);

/** An end that proves its session; the test then writes its frames. */
async function byHand(url: URL, identity: TestIdentity, to: string): Promise<WebSocket> {
  const headers = {
    'x-otela-protocol': String(PROTOCOL_VERSION),
    'x-otela-ticket': toBase64url(identity.ticket.bytes),
  };
  const socket = new WebSocket(`${url.href.replace('http', 'ws')}agent/circuit/${to}`, { headers });
  socket.on('error', () => {});
  socket.once('message', (data: Buffer) =>
    readFrames(data, (frame) => {
      if (frame.type !== 'challenge') throw new Error(frame.type);
      const signature = identity.sign(helloMessage(identity.session, 0, frame.nonce, `circuit:${url.host}`));
      const { publicKey } = identity;
      socket.send(encodeFrame({ type: 'hello', publicKey, signature, generation: 0, window: 0 }));
    }),
  );
  return socket;
}

const connected = (socket: WebSocket) =>
  new Promise<void>((resolve) => socket.on('message', (data: Buffer) => data.toString() === 'connected' && resolve()));

async function circuit() {
  const cluster = await two();
  const { url, callee, caller, tunnel } = cluster;
  const near = leg(url, caller, callee.session);
  const far = leg(url, callee, await called(tunnel));
  return { ...cluster, near: await near, far: await far };
}

async function read(from: Duplex, bytes: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of from) {
    pieces.push(piece as Buffer);
    if (pieces.reduce((sum, one) => sum + one.length, 0) >= bytes) break;
  }
  return Buffer.concat(pieces);
}

it('passes on what comes, both ways, and holds no more than a window for an end that does not read', async () => {
  const { near, far } = await circuit();
  const sent = randomBytes(4 * 1024 * 1024);
  let out = false;
  near.write(sent, () => {
    out = true;
  });
  far.write('the other way');
  expect((await once(near, 'data'))[0].toString()).toBe('the other way');
  await new Promise((resolve) => setTimeout(resolve, 1_000)); // the test is that nothing happens
  expect(out).toBe(false);
  expect(Buffer.compare(await read(far, sent.length), sent)).toBe(0);
  expect(out).toBe(true);
});

it('ends for both when one leaves', async () => {
  const { near, far } = await circuit();
  const closed = once(far, 'close');
  far.resume();
  near.destroy();
  await closed;
});

describe('is over', () => {
  it.each<[string, (end: WebSocket) => void]>([
    ['for an end that sends more than was granted', (end) => end.send(Buffer.alloc(1000 * 1024))],
    ['for an end that says it has read what it was not asked', (end) => end.send('read 0123456789abcdef')],
    ['for an end that grants itself more', (end) => end.send('more')],
  ])('%s', async (_, act) => {
    const { url, callee, caller, tunnel } = await two();
    const end = await byHand(url, caller, callee.session);
    const there = connected(end);
    const far = await leg(url, callee, await called(tunnel));
    await there;
    const closed = Promise.all([once(end, 'close'), once(far, 'close')]);
    far.pause();
    act(end);
    await eventually('both ends are closed', 15_000, () => end.readyState === WebSocket.CLOSED && far.destroyed);
    await closed;
  });

  it('for an end that sends more messages than the other one reads, however short', async () => {
    const { url, callee, caller, tunnel } = await two();
    const end = await byHand(url, caller, callee.session);
    const there = connected(end);
    const far = await byHand(url, callee, await called(tunnel));
    await there;
    far.pause();
    for (let sent = 0; sent < 20_000; sent++) end.send(Buffer.alloc(sent % 2));
    await eventually('it is closed', 15_000, () => end.readyState === WebSocket.CLOSED || undefined);
    far.terminate();
  });

  it('before it begins, for another session than the one that is called, and for a name that is none', async () => {
    const { url, callee, caller, tunnel } = await two();
    const near = leg(url, caller, callee.session);
    near.catch(() => {});
    await expect(leg(url, caller, await called(tunnel))).rejects.toMatchObject({ code: 'unreachable' });
    await expect(leg(url, callee, '0'.repeat(32))).rejects.toMatchObject({ code: 'unreachable' });
  });

  it('at once for a session without a tunnel, and where the operator wants none', async () => {
    const { url, caller } = await two();
    await expect(leg(url, caller, 'a'.repeat(26))).rejects.toMatchObject({ code: 'unreachable' });
    const off = await two({ MESH_RELAY: 'off' });
    await expect(leg(off.url, off.caller, off.callee.session)).rejects.toMatchObject({ code: 'unreachable' });
    expect(off.tunnel.frames.some(({ type }) => type === 'circuit')).toBe(false);
  });
});
