/**
 * Agents that cannot dial each other meet at a relay that both reach: over real sockets, in one process. NATs are in
 * test/netns/relay.test.ts.
 */
import { connect, createServer } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import type { ChannelPeer } from '../../../agent/mesh/channel/accept-channel.ts';
import { Listener } from '../../../agent/mesh/channel/channel-listener.ts';
import { sessionContext } from '../../../agent/mesh/channel/channel-tls.ts';
import { dialChannel } from '../../../agent/mesh/channel/dial-channel.ts';
import { withDeadline } from '../../../agent/mesh/channel/handshake-reads.ts';
import { type CircuitMessage, receiveMessage, sendMessage } from '../../../agent/mesh/circuit/circuit-messages.ts';
import { type CircuitLimits, CircuitRelay } from '../../../agent/mesh/circuit/circuit-relay.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import type { Member } from '../../support/mesh/member.ts';
import { atEnd, endAll, eventually, freePort } from '../../support/processes.ts';
import { type Identity, identity, NO_RELEASES, openTicket } from './node.ts';
import { allSee, sessionsOf, village } from './village.ts';

afterEach(endAll);

const WITHIN_MS = 30_000;

/** Behind a NAT: it dials, and does not listen. */
const BEHIND = { listen: undefined };
const RELAY = { relay: true, more: { offerRelay: true } };

const reservedAt = (member: Member, relay: string) =>
  eventually('a reservation', WITHIN_MS, () => member.mesh.circuits.reservedAt.includes(relay) || undefined);

/** Two agents behind NATs and a relay at which each has a reservation. */
async function meeting() {
  const { join } = village();
  const relay = await join(RELAY);
  const [a, b] = [await join(BEHIND), await join(BEHIND)];
  await allSee([relay, a, b], sessionsOf([relay, a, b]));
  await Promise.all([reservedAt(a, relay.session), reservedAt(b, relay.session)]);
  return { join, relay, a, b };
}

describe('agents that both listen nowhere', () => {
  it('meet at a relay, over a channel whose ends have proven their keys, and again when it is lost', async () => {
    const { relay, a, b } = await meeting();
    const channel = await a.mesh.channelTo(b.session);
    expect(channel).toMatchObject({ session: b.session, through: relay.session, dialled: true });
    const other = await eventually('the other end', WITHIN_MS, () => b.mesh.channels.get(a.session));
    expect(other).toMatchObject({ through: relay.session, dialled: false });
    expect(relay.mesh.circuits.relay?.carried.bytes).toBeGreaterThan(1_000);
    channel.destroy('lost');
    const again = await a.mesh.channelTo(b.session);
    expect(again.closed).toBe(false);
    expect(again).not.toBe(channel);
  });

  it('are reached by the relay itself', async () => {
    const { relay, a } = await meeting();
    a.mesh.channels.hangUp(relay.session, 'test');
    const channel = await eventually('a channel', WITHIN_MS, () =>
      relay.mesh.channelTo(a.session).catch(() => undefined),
    );
    expect(channel.session).toBe(a.session);
  });

  it('do not meet where no agent agreed to relay', async () => {
    const { join } = village();
    const [third, a, b] = [await join(), await join(BEHIND), await join(BEHIND)];
    await allSee([third, a, b], sessionsOf([third, a, b]));
    await expect(a.mesh.channelTo(b.session)).rejects.toMatchObject({ code: 'unreachable' });
    expect(a.mesh.circuits.reservedAt).toEqual([]);
  });

  it('do not use one that says it relays and does not', async () => {
    const { join } = village();
    const [third, a, b] = [await join({ relay: true }), await join(BEHIND), await join(BEHIND)];
    await allSee([third, a, b], sessionsOf([third, a, b]));
    await expect(a.mesh.channelTo(b.session)).rejects.toMatchObject({ name: 'ChannelError' });
  });
});

it('a direct way is taken again as soon as there is one', async () => {
  const { join } = village();
  const relay = await join(RELAY);
  const port = await freePort();
  const a = await join(BEHIND);
  const b = await join({ addresses: [`127.0.0.1:${port}`] });
  await allSee([relay, a, b], sessionsOf([relay, a, b]));
  await reservedAt(b, relay.session);
  a.mesh.channels.hangUp(b.session, 'test');
  b.mesh.channels.hangUp(a.session, 'test');
  const channel = await a.mesh.channelTo(b.session);
  expect(channel.through).toBe(relay.session);
  // The firewall opens.
  const hole = createServer((socket) => {
    const inside = connect(Number(b.mesh.addresses[0]?.split(':')[1]), '127.0.0.1');
    for (const end of [socket, inside])
      end.on('error', () => {}).on('close', () => [socket, inside].map((s) => s.destroy()));
    socket.pipe(inside).pipe(socket);
  });
  await new Promise<void>((resolve) => hole.listen(port, '127.0.0.1', resolve));
  atEnd(() => void hole.close());
  await eventually('both ends have a direct channel', WITHIN_MS, () => {
    const ends = [a.mesh.channels.get(b.session), b.mesh.channels.get(a.session)];
    return ends.every((end) => end !== undefined && end.through === undefined) || undefined;
  });
  await eventually('the relayed one is gone', WITHIN_MS, () => channel.closed || undefined);
  expect((await a.mesh.channelTo(b.session)).through).toBeUndefined();
});

/** A relay that joins two agents and then runs `act`. */
async function malicious(act: (caller: Duplex, callee: Duplex) => void) {
  const town = village();
  const first = await town.join();
  const port = await freePort();
  const evil = await town.join({ listen: undefined, relay: true, addresses: [`127.0.0.1:${port}`] });
  const own = { context: sessionContext(evil.key), ticket: evil.ticket.bytes, releases: NO_RELEASES };
  const reserved = new Map<string, Duplex>();
  const calls: CircuitMessage[] = [];
  const listener = new Listener({
    own,
    openTicket: (ticket) => peerOf(ticket, first),
    onProven: ({ socket }) => socket.destroy(),
    onCircuit: ({ socket, peer }) => {
      socket.on('error', () => {});
      void receiveMessage(socket)
        .then(async (said) => {
          calls.push(said);
          if (said.type === 'reserve') {
            reserved.set(peer.session, socket);
            return sendMessage(socket, { type: 'reserved' });
          }
          if (said.type !== 'connect') return;
          const callee = reserved.get(said.session);
          if (callee === undefined) return socket.destroy();
          reserved.delete(said.session);
          sendMessage(callee, { type: 'call' });
          while ((await receiveMessage(callee)).type !== 'answer');
          sendMessage(socket, { type: 'connected' });
          act(socket, callee);
        })
        .catch(() => socket.destroy());
    },
  });
  await listener.open('127.0.0.1', port);
  atEnd(() => listener.close());
  const faults: string[] = [];
  const log = (line: string) => void (line.includes('internal error') && faults.push(line));
  const behind = { ...BEHIND, more: { log } };
  const [a, b, c] = [await town.join(behind), await town.join(behind), await town.join(behind)];
  await allSee([first, a, b, c], sessionsOf([first, evil, a, b, c]));
  await Promise.all([a, b, c].map((one) => reservedAt(one, evil.session)));
  return { ...town, evil, a, b, c, faults, reserved };
}

function peerOf(ticket: Uint8Array, member: Member): ChannelPeer {
  for (const { session, ticket: known } of member.mesh.replica.entries())
    if (Buffer.compare(known.bytes, ticket) === 0)
      return { session, provider: 'lab', sessionKey: known.sessionKey, ticket: known.bytes };
  throw new Error('a stranger');
}

/** Forwards pieces, changed by `change` after the first `good` of them. */
function passing(good: number, change: (piece: Buffer, pass: (piece: Buffer) => void) => void) {
  return (caller: Duplex, callee: Duplex) => {
    let seen = 0;
    for (const [from, to] of [
      [caller, callee],
      [callee, caller],
    ] as const) {
      from.on('close', () => to.destroy());
      from.on('data', (piece: Buffer) => {
        const pass = (bytes: Buffer) => void (to.writable && to.write(bytes));
        if (++seen <= good) pass(piece);
        else change(piece, pass);
      });
      from.resume();
    }
  };
}

const FAR = 1_000_000;
const flip = (piece: Buffer) => Buffer.from(piece.map((byte, at) => (at === piece.length - 1 ? byte ^ 1 : byte)));

describe('a relay that', () => {
  it.each<[string, (piece: Buffer, pass: (piece: Buffer) => void) => void]>([
    ['drops', () => {}],
    ['changes a bit', (piece, pass) => pass(flip(piece))],
    ['repeats', (piece, pass) => [piece, piece].forEach(pass)],
    ['floods with noise', (_, pass) => pass(Buffer.alloc(4 * 1024 * 1024, 0x5a))],
    [
      'cuts a piece in two and swaps them',
      (piece, pass) => pass(Buffer.concat([piece.subarray(9), piece.subarray(0, 9)])),
    ],
  ])('%s in the handshake leads to no channel', async (_, change) => {
    const { a, b, faults } = await malicious(passing(0, change));
    await expect(a.mesh.channelTo(b.session)).rejects.toMatchObject({ name: 'ChannelError' });
    expect(a.mesh.channels.get(b.session)).toBeUndefined();
    expect(faults).toEqual([]);
  });

  it.each<[string, (piece: Buffer, pass: (piece: Buffer) => void) => void]>([
    ['changes a bit', (piece, pass) => pass(flip(piece))],
    ['repeats', (piece, pass) => [piece, piece].forEach(pass)],
    ['floods with noise', (_, pass) => pass(Buffer.alloc(4 * 1024 * 1024, 0x5a))],
  ])('%s later ends the channel, and an honest one is used next', async (_, change) => {
    let evil = false;
    const { a, b, join, faults } = await malicious(
      passing(0, (piece, pass) => (evil ? change(piece, pass) : pass(piece))),
    );
    const channel = await a.mesh.channelTo(b.session);
    evil = true;
    channel.link.put({ type: 'load', running: 0, waiting: 0 });
    await eventually('the channel ends', WITHIN_MS, () => channel.closed || undefined);
    expect(faults).toEqual([]);
    const honest = await join(RELAY);
    await eventually('it is known', WITHIN_MS, () => a.mesh.replica.get(honest.session) && true);
    await reservedAt(b, honest.session);
    const again = await eventually('another channel', WITHIN_MS, () =>
      a.mesh.channelTo(b.session).catch(() => undefined),
    );
    expect(again.session).toBe(b.session);
  });

  it('leads to another session than was asked for gets a failed handshake', async () => {
    const others: Duplex[] = [];
    const { a, b, c, reserved } = await malicious((caller, callee) => {
      others.push(callee);
      const swapped = reserved.get(c.session);
      if (swapped === undefined) return caller.destroy();
      sendMessage(swapped, { type: 'call' });
      neverRejects(receiveMessage(swapped).then(() => passing(FAR, () => {})(caller, swapped)));
    });
    await expect(a.mesh.channelTo(b.session)).rejects.toMatchObject({ code: 'wrong_key' });
    expect(a.mesh.channels.get(b.session) ?? a.mesh.channels.get(c.session)).toBeUndefined();
  });
});

describe('a relay is bounded:', () => {
  interface Caller extends Identity {
    say(word: CircuitMessage): Promise<{ socket: Duplex; said: CircuitMessage }>;
  }

  async function relayOf(limits: Partial<CircuitLimits>, admits: (peer: ChannelPeer) => boolean = () => true) {
    const own = identity();
    const relay = new CircuitRelay({ admits, limits });
    const listener = new Listener({
      own: { context: sessionContext(own), ticket: own.ticket, releases: NO_RELEASES },
      openTicket,
      onProven: ({ socket }) => socket.destroy(),
      onCircuit: (proven) => neverRejects(relay.take(proven)),
    });
    const port = await listener.open('127.0.0.1', 0);
    atEnd(() => {
      listener.close();
      relay.close();
    });
    const caller = (): Caller => {
      const me = identity();
      const dial = async () => {
        const credentials = { context: sessionContext(me), ticket: me.ticket, releases: NO_RELEASES };
        const { socket } = await dialChannel({
          own: credentials,
          openTicket,
          addresses: [`127.0.0.1:${port}`],
          circuit: true,
        });
        atEnd(() => void socket.destroy());
        return socket.on('error', () => {});
      };
      const say = async (word: CircuitMessage) => {
        const socket = await dial();
        sendMessage(socket, word);
        return { socket, said: await withDeadline(socket, 10_000, 'timeout', () => receiveMessage(socket)) };
      };
      return { ...me, say };
    };
    return { relay, caller };
  }

  /** Reserves, and answers the first call. */
  async function callee(one: Caller): Promise<Duplex> {
    const { socket } = await one.say({ type: 'reserve' });
    void receiveMessage(socket).then(
      () => sendMessage(socket, { type: 'answer' }),
      () => {},
    );
    return socket;
  }

  it('reservations', async () => {
    const { caller, relay } = await relayOf({ reservations: 1 });
    const one = caller();
    await one.say({ type: 'reserve' });
    expect((await caller().say({ type: 'reserve' })).said).toEqual({ type: 'refused', why: 'full' });
    expect((await one.say({ type: 'reserve' })).said, 'its own is made anew').toEqual({ type: 'reserved' });
    expect(relay.reserved).toBe(1);
  });

  it('circuits, and those of one session', async () => {
    const { caller, relay } = await relayOf({ circuits: 2, circuitsPerSession: 1 });
    const [a, b, c, d, e, f] = [caller(), caller(), caller(), caller(), caller(), caller()];
    for (const one of [b, c, d, f]) await callee(one);
    expect((await a.say({ type: 'connect', session: b.session })).said).toEqual({ type: 'connected' });
    expect((await a.say({ type: 'connect', session: c.session })).said).toEqual({ type: 'refused', why: 'full' });
    expect((await e.say({ type: 'connect', session: d.session })).said).toEqual({ type: 'connected' });
    expect((await caller().say({ type: 'connect', session: f.session })).said).toEqual({
      type: 'refused',
      why: 'full',
    });
    expect(relay.open).toBe(2);
  });

  it('calls of one session', async () => {
    const { caller } = await relayOf({ callsBurst: 2, callsPerSecond: 0.001 });
    const a = caller();
    const nobody = identity().session;
    for (const why of ['absent', 'absent', 'busy'])
      expect((await a.say({ type: 'connect', session: nobody })).said).toEqual({ type: 'refused', why });
  });

  it('a session that is not in the registry, or is removed from it', async () => {
    const out = new Set<string>();
    const { caller, relay } = await relayOf({}, ({ session }) => !out.has(session));
    const [a, b, stranger] = [caller(), caller(), caller()];
    out.add(stranger.session);
    for (const word of [{ type: 'reserve' }, { type: 'connect', session: b.session }] as const)
      expect((await stranger.say(word)).said).toEqual({ type: 'refused', why: 'stranger' });
    await callee(b);
    await a.say({ type: 'connect', session: b.session });
    out.add(b.session);
    await eventually('its circuit ends', WITHIN_MS, () => (relay.open === 0 ? true : undefined));
  });

  it('bytes of one circuit, and their pace', async () => {
    const [perSecond, max] = [256 * 1024, 1024 * 1024];
    const { caller, relay } = await relayOf({ circuitBytes: max, circuitBytesPerSecond: perSecond });
    const [a, b] = [caller(), caller()];
    const far = await callee(b);
    const { socket } = await a.say({ type: 'connect', session: b.session });
    let got = 0;
    const startedAt = performance.now();
    const ended = new Promise((resolve) => far.on('close', resolve));
    far.on('data', (piece: Buffer) => {
      got += piece.length;
    });
    const more = () => {
      while (socket.writable && socket.write(Buffer.alloc(64 * 1024)));
    };
    socket.on('drain', more);
    more();
    await ended;
    expect(got).toBeLessThanOrEqual(max);
    // The first second's worth arrives immediately.
    expect(performance.now() - startedAt).toBeGreaterThan(((max - perSecond - 128 * 1024) / perSecond) * 1000);
    expect(relay.open).toBe(0);
  });

  it('what one reservation is good for: of those that wait for a callee each gets its own', async () => {
    const { caller } = await relayOf({ returnMs: 5_000 });
    const [a, b, c, d] = [caller(), caller(), caller(), caller()];
    await callee(b);
    await a.say({ type: 'connect', session: b.session });
    const connected: Duplex[] = [];
    const waiting = [c, d].map(async (one) => {
      const { socket, said } = await one.say({ type: 'connect', session: b.session });
      expect(said).toEqual({ type: 'connected' });
      connected.push(socket);
    });
    await new Promise((resolve) => setTimeout(resolve, 300)); // both have asked
    for (const text of ['one', 'two']) {
      const far = await callee(b);
      const socket = await eventually('a caller is connected', WITHIN_MS, () => connected.shift());
      socket.write(text);
      const got = await new Promise<Buffer>((resolve) => far.once('data', resolve));
      expect(got.toString()).toBe(text);
    }
    await Promise.all(waiting);
  });

  it('a session that does not answer', async () => {
    const { caller, relay } = await relayOf({});
    const [a, b] = [caller(), caller()];
    await b.say({ type: 'reserve' }); // and does not answer from then on
    expect((await a.say({ type: 'connect', session: b.session })).said).toEqual({ type: 'refused', why: 'absent' });
    expect(relay.open).toBe(0);
  });
});
