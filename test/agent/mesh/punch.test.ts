/** Messages and sockets of two agents that open a direct path. NATs are in test/netns/punch.test.ts. */
import { connect, type Socket } from 'node:net';
import { Duplex, PassThrough } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { afterEach, expect, it } from 'vitest';
import type { ProvenConnection } from '../../../agent/mesh/channel/accept-channel.ts';
import { withLengthPrefix } from '../../../agent/mesh/channel/length-prefixed-messages.ts';
import { HolePuncher } from '../../../agent/mesh/punch/hole-puncher.ts';
import {
  outsideAddress,
  type PunchMessage,
  receivePunchMessage,
  sendPunchMessage,
} from '../../../agent/mesh/punch/punch-messages.ts';
import { SimultaneousOpen } from '../../../agent/mesh/punch/simultaneous-open.ts';
import { atEnd, endAll, eventually, freePorts } from '../../support/processes.ts';

afterEach(endAll);

const LOOPBACK = '127.0.0.1';
const address = (port: number) => ({ host: LOOPBACK, port });

/** Two ends of a connection in memory. */
function pair(): [Duplex, Duplex] {
  const [one, two] = [new PassThrough(), new PassThrough()];
  const ends: [Duplex, Duplex] = [
    Duplex.from({ readable: one, writable: two }),
    Duplex.from({ readable: two, writable: one }),
  ];
  for (const end of ends) end.on('error', () => {});
  return ends;
}

/** A caller or a callee sees the connection through a relay as TLS. */
const proven = (socket: Duplex): ProvenConnection => ({
  socket: socket as TLSSocket,
  peer: { session: 'b'.repeat(26), provider: 'lab', sessionKey: new Uint8Array(32), ticket: new Uint8Array() },
});

it('two ends that know each other’s port connect, whichever begins first', async () => {
  const a = await freePorts(2);
  const b = a + 1;
  const heard: string[] = [];
  const open = (localPort: number, remote: number, name: string) => {
    const opening = new SimultaneousOpen({
      localPort,
      remote: address(remote),
      onSocket: (socket) => {
        atEnd(() => void socket.destroy());
        socket.on('error', () => {});
        socket.write(name);
        socket.on('data', (data) => heard.push(`${name} hears ${data}`));
      },
    });
    atEnd(() => opening.close());
  };
  open(a, b, 'a');
  await new Promise((resolve) => setTimeout(resolve, 250));
  open(b, a, 'b');
  await eventually('both to hear each other', 10_000, () =>
    heard.includes('a hears b') && heard.includes('b hears a') ? true : undefined,
  );
});

it('a port takes few strangers, and after its end none', async () => {
  const port = await freePorts(2);
  const closedPort = port + 1;
  const arrived: Socket[] = [];
  const opening = new SimultaneousOpen({
    localPort: port,
    remote: address(closedPort),
    onSocket: (socket) => void arrived.push(socket.on('error', () => {})),
  });
  atEnd(() => opening.close());
  const strangers = Array.from({ length: 9 }, () => connect(address(port)).on('error', () => {}));
  atEnd(() => strangers.forEach((socket) => void socket.destroy()));
  await eventually('strangers to be closed', 10_000, () =>
    strangers.filter((socket) => socket.closed).length >= 5 ? true : undefined,
  );
  expect(arrived.length).toBeLessThanOrEqual(4);
  opening.close();
  const late = connect(address(port));
  await expect(new Promise((_, reject) => late.on('error', reject))).rejects.toMatchObject({ code: 'ECONNREFUSED' });
});

it.each([
  ['198.51.100.7:40000', true],
  ['8.8.8.8:1024', true],
  ['8.8.8.8:443', false],
  ['10.0.0.1:40000', false],
  ['127.0.0.1:40000', false],
  ['172.20.0.1:40000', false],
  ['192.168.1.1:40000', false],
  ['169.254.169.254:40000', false],
  ['100.64.0.1:40000', false],
  ['0.0.0.0:40000', false],
  ['224.0.0.1:40000', false],
  ['255.255.255.255:40000', false],
  ['1.2.3.400:40000', false],
  ['012.0.0.1:40000', false],
  ['8.8.8.08:40000', false],
  ['[2001:db8::1]:40000', false],
  ['host.example.org:40000', false],
  ['0x7f.0.0.1:40000', false],
  ['8.8.8.8:70000', false],
  ['', false],
])('%s is an address to which a peer may make this agent connect: %s', (text, isOutside) => {
  expect(outsideAddress(text) !== undefined).toBe(isOutside);
});

it('messages arrive as they were sent, and anything else is refused', async () => {
  const messages: PunchMessage[] = [
    { type: 'from', address: { host: '198.51.100.7', port: 40_000 } },
    { type: 'ping' },
    { type: 'pong' },
    { type: 'go' },
    { type: 'unable' },
  ];
  const [one, two] = pair();
  for (const message of messages) sendPunchMessage(one, message);
  for (const message of messages) expect(await receivePunchMessage(two)).toEqual(message);
  for (const text of ['', 'GO', 'go ', 'from', 'from 10.0.0.1:40000', 'from 8.8.8.8:22', 'x'.repeat(65)]) {
    const [sender, receiver] = pair();
    sender.write(withLengthPrefix(Buffer.from(text)));
    await expect(receivePunchMessage(receiver), text).rejects.toMatchObject({ code: 'stranger' });
  }
});

function puncher(more: Partial<ConstructorParameters<typeof HolePuncher>[0]> = {}) {
  const ended: number[] = [];
  const made = new HolePuncher({
    dial: () => Promise.reject(new Error('not here')),
    observe: async (localPort) => ({
      address: { host: '198.51.100.7', port: 40_000 },
      end: () => ended.push(localPort),
    }),
    secure: () => Promise.reject(new Error('not here')),
    accept: async () => false,
    ...more,
  });
  atEnd(() => made.close());
  return { made, ended };
}

it.each([
  ['another message first', 'ping'],
  ['an address of this network', 'from 10.0.0.1:40000'],
  ['no text at all', '\u0000\u0001'],
])('a caller that sends %s is closed, and no port stays open', async (_, text) => {
  const { made, ended } = puncher();
  const [ours, theirs] = pair();
  theirs.write(withLengthPrefix(Buffer.from(text)));
  await made.answer(proven(ours));
  await eventually('the connection to be closed', 5_000, () => ours.destroyed || undefined);
  expect(ended).toEqual([]);
});

it('a callee that no relay observes says so, and the caller keeps its relay', async () => {
  const callee = puncher({ observe: async () => undefined });
  const [ours, theirs] = pair();
  const answered = callee.made.answer(proven(ours));
  const caller = puncher({ dial: async () => proven(theirs) });
  await expect(caller.made.punch('b'.repeat(26))).rejects.toMatchObject({ code: 'unreachable' });
  await answered;
  await eventually('both to be closed', 5_000, () => (ours.destroyed && theirs.destroyed) || undefined);
  expect(caller.ended).toHaveLength(1);
});

it('at most eight callers are answered at the same time', async () => {
  const { made } = puncher();
  const silent = Array.from({ length: 9 }, pair);
  const answers = silent.map(([ours]) => made.answer(proven(ours)));
  await eventually('the ninth to be closed', 5_000, () => (silent[8]?.[0].destroyed ? true : undefined));
  expect(silent.slice(0, 8).some(([ours]) => ours.destroyed)).toBe(false);
  for (const [, theirs] of silent) theirs.destroy();
  for (const [ours] of silent) ours.destroy();
  await Promise.all(answers);
});

it('a caller and a callee whose NATs allow no path give up, and close what they opened', async () => {
  const [ours, theirs] = pair();
  // 198.51.100.0/24 leads nowhere.
  const callee = puncher();
  const answered = callee.made.answer(proven(ours));
  const caller = puncher({ dial: async () => proven(theirs) });
  await expect(caller.made.punch('b'.repeat(26))).rejects.toMatchObject({ code: 'unreachable' });
  await answered;
  expect([caller.ended.length, callee.ended.length]).toEqual([1, 1]);
});
