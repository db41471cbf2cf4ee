/** Channels between agents: which peers get one, what it carries, how it ends. */
import { createServer, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { acceptSecure } from '../../../agent/mesh/channel/accept-channel.ts';
import { readPreface } from '../../../agent/mesh/channel/channel-preface.ts';
import { sessionContext } from '../../../agent/mesh/channel/channel-tls.ts';
import { dialChannel } from '../../../agent/mesh/channel/dial-channel.ts';
import { withLengthPrefix } from '../../../agent/mesh/channel/length-prefixed-messages.ts';
import { OutboundStream } from '../../../shared/wire/outbound-stream.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { byHand } from './by-hand.ts';
import { connected, identity, NO_RELEASES, Node, openTicket } from './node.ts';

afterEach(endAll);

const text = (bytes: string) => Buffer.from(bytes);

/** `once` of node:events rejects on an error, which is how the other end closes here. */
const happens = (socket: Socket, event: string) => new Promise<void>((resolve) => socket.once(event, () => resolve()));

describe('two agents', () => {
  it('hear each other, and each has verified the identity of the other', async () => {
    const [a, b] = await connected();
    a.channels.get(b.own.session)?.gossip(text('from a'));
    b.channels.get(a.own.session)?.gossip(text('from b'));
    await Promise.all([a.log.heard('gossip from b'), b.log.heard('gossip from a')]);
  });

  it('need not show a ticket that the other has', async () => {
    const [a, b] = await Promise.all([Node.start(), Node.start()]);
    const channel = await a.dial(b, b.own.session, b.own.ticket);
    channel?.gossip(text('known'));
    await b.log.heard('gossip known');
    expect(channel?.session).toBe(b.own.session);
  });

  it('carry streams of requests beside gossip', async () => {
    const [a, b] = await connected();
    a.channels.get(b.own.session)?.link.put({ type: 'accept', stream: 1, bodyOffset: 0, bodyDone: true });
    await b.log.heard(`accept from ${a.own.session}`);
    expect(a.channels.get(b.own.session)?.dialled).toBe(true);
    expect(b.channels.get(a.own.session)?.dialled).toBe(false);
  });

  it('that dial each other at once keep one channel, the same at both ends, and neither sees the other go', async () => {
    for (let round = 0; round < 10; round++) {
      const [a, b] = await Promise.all([Node.start(), Node.start()]);
      await Promise.all([a.dial(b, b.own.session), b.dial(a, a.own.session)]);
      await Promise.all([a.log.heard(/^channel closed/), b.log.heard(/^channel closed/)]);
      a.channels.get(b.own.session)?.gossip(text('still here'));
      b.channels.get(a.own.session)?.gossip(text('here too'));
      await Promise.all([a.log.heard('gossip here too'), b.log.heard('gossip still here')]);
      const smaller = a.own.session < b.own.session ? a : b;
      expect(a.channels.get(b.own.session)?.dialled).toBe(smaller === a);
      expect(b.channels.get(a.own.session)?.dialled).toBe(smaller === b);
      expect([...a.log.lines, ...b.log.lines].filter((line) => line.startsWith('closed'))).toEqual([]);
    }
  });

  it('that lost a connection without being told open a new one in its place', async () => {
    const [a, b] = await connected();
    await a.dial(b, b.own.session);
    await b.log.heard(`opened ${a.own.session}`, 2);
    a.channels.get(b.own.session)?.gossip(text('new one'));
    await b.log.heard('gossip new one');
    expect(b.channels.size).toBe(1);
  });

  it('end at a good-bye, once, however often it is said', async () => {
    const [a, b] = await connected();
    const channel = a.channels.get(b.own.session);
    for (let i = 0; i < 3; i++) channel?.close('enough');
    await b.log.heard(`closed ${a.own.session} enough`);
    expect(a.log.lines.filter((line) => line.startsWith('closed'))).toEqual([`closed ${b.own.session} enough`]);
    expect(channel?.gossip(text('too late'))).toBe(false);
  });

  it('hear how the streams of the other ended before they hear its good-bye', async () => {
    const [a, b] = await connected();
    const channel = a.channels.get(b.own.session);
    const outgoing = new OutboundStream();
    outgoing.push(text('last words'));
    outgoing.finish();
    channel?.link.attach(1, { outgoing, ending: () => [{ type: 'end', stream: 1, offset: outgoing.length }] });
    channel?.close('leaving');
    await b.log.heard(`closed ${a.own.session} leaving`);
    const { session } = a.own;
    expect(b.log.lines.slice(-4)).toEqual([
      ...[`data from ${session}`, `end from ${session}`, `channel closed ${session}`, `closed ${session} leaving`],
    ]);
  });

  it('that asks for a channel when it loses one is not given the lost one', async () => {
    const [a, b] = await connected();
    b.channels.get(a.own.session)?.close('enough');
    await a.log.heard(`closed ${b.own.session} enough`);
    expect([...a.log.lines, ...b.log.lines]).not.toContain('a closed channel is given out');
  });

  it('take no more channels than they have room for', async () => {
    const full = await Node.start(identity(), {}, 1);
    const [first, second] = await Promise.all([Node.start(), Node.start()]);
    await first.dial(full);
    await full.log.heard(`opened ${first.own.session}`);
    await second.dial(full).then(
      (channel) => eventually('closed', 5_000, () => (channel?.closed ? true : undefined)),
      () => {},
    );
    expect(full.channels.get(second.own.session)).toBeUndefined();
    full.channels.get(first.own.session)?.gossip(text('still served'));
    await first.log.heard('gossip still served');
  });
});

describe('the one that dials', () => {
  it('refuses another session than it dialled, at an address that others use too', async () => {
    const [a, b, c] = await Promise.all([Node.start(), Node.start(), Node.start()]);
    await expect(a.dial(c, b.own.session)).rejects.toMatchObject({ code: 'wrong_key' });
    expect(a.channels.size).toBe(0);
  });

  it('refuses an impostor that shows a ticket whose key he does not hold', async () => {
    const [a, honest, impostor] = [await Node.start(), identity(), identity()];
    const server = createServer((socket: Socket) => {
      socket.on('error', () => {});
      void readPreface(socket)
        .then((who) => {
          if (who === 'connect') throw new Error('no ticket');
          const own = { context: sessionContext(impostor), ticket: honest.ticket, releases: NO_RELEASES };
          return acceptSecure(socket, openTicket(who.ticket), own, who);
        })
        .catch(() => {});
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const at = server.address();
    const port = typeof at === 'object' && at !== null ? at.port : 0;
    await expect(a.dial({ address: `127.0.0.1:${port}` }, honest.session)).rejects.toMatchObject({ code: 'wrong_key' });
    await expect(a.dial({ address: `127.0.0.1:${port}` })).rejects.toMatchObject({ code: 'wrong_key' });
    const known = a.dial({ address: `127.0.0.1:${port}` }, honest.session, honest.ticket);
    await expect(known).rejects.toMatchObject({ code: 'wrong_key' });
    server.close();
  });

  it('tries all addresses of a session: one without a listener, one of another session, one without an answer', async () => {
    const [a, b, c, gone] = await Promise.all([Node.start(), Node.start(), Node.start(), Node.start()]);
    gone.close();
    // TEST-NET-1 (RFC 5737): no route, or a route to nowhere.
    const addresses = [gone.address, 'nonsense', c.address, '192.0.2.1:9', b.address];
    const { peer, socket } = await dialChannel({
      own: { context: a.context, ticket: a.own.ticket, releases: NO_RELEASES },
      addresses,
      session: b.own.session,
      openTicket,
    });
    expect(peer.session).toBe(b.own.session);
    socket.destroy();
  });

  it('reports an address without a listener as unreachable', async () => {
    const [a, gone] = [await Node.start(), await Node.start()];
    gone.close();
    await expect(a.dial(gone)).rejects.toMatchObject({ code: 'unreachable', cause: { code: 'ECONNREFUSED' } });
    await expect(a.dial({ address: 'not an address' })).rejects.toMatchObject({ code: 'unreachable' });
  });
});

/**
 * DATA frames of stream 1 that all begin at byte 0: more than the channel has credit for, in messages within their
 * limit.
 */
function tooMuchData(): Buffer {
  const frame = Buffer.concat([Buffer.from([3, 1, 0, 0x80, 0x80, 4]), Buffer.alloc(65_536)]);
  const message = withLengthPrefix(Buffer.concat(Array.from({ length: 12 }, () => frame)));
  return Buffer.concat([message, message]);
}

describe('a peer that misbehaves loses its channel, the others theirs not', () => {
  const wrongs: [string, Uint8Array, RegExp][] = [
    ['a length beyond the limit', Buffer.from('7fffffff', 'hex'), /message of 2147483647 bytes/],
    ['an empty message', Buffer.from('00000000', 'hex'), /message of 0 bytes/],
    ['a frame type that does not exist', withLengthPrefix(Buffer.from([0x7f])), /unknown frame type/],
    [
      'a frame that ends in its middle',
      withLengthPrefix(Buffer.from([14, 200, 1, 0])),
      /a length points past the message/,
    ],
    [
      'gossip beyond 64 KiB',
      withLengthPrefix(Buffer.concat([Buffer.from([14, 0x81, 0x80, 4]), Buffer.alloc(65_537)])),
      /a field has 65537 bytes/,
    ],
    ['a frame that only gateways send', withLengthPrefix(Buffer.from([10, 1])), /recorded between agents/],
    ['data beyond its credit', tooMuchData(), /more than the socket was granted/],
  ];
  it.each(wrongs)('%s', async (_, bytes, reason) => {
    const [a, b] = await connected();
    const { socket, own } = await byHand(b);
    socket.write(bytes);
    await b.log.heard(new RegExp(`^closed ${own.session} ${reason.source}`));
    a.channels.get(b.own.session)?.gossip(text('unmoved'));
    await b.log.heard('gossip unmoved');
    expect(b.channels.size).toBe(1);
  });

  it('what finds a fault of ours ends that channel, not the agent', async () => {
    const [a, b] = await connected();
    const { socket, own } = await byHand(b);
    socket.write(withLengthPrefix(Buffer.from([8, 0])));
    await b.log.heard('fault not thought of');
    await b.log.heard(`closed ${own.session} not thought of`);
    a.channels.get(b.own.session)?.gossip(text('unmoved'));
    await b.log.heard('gossip unmoved');
  });

  it('a flood of gossip', async () => {
    const [a, b] = await connected();
    const { socket, own } = await byHand(b);
    const ended = happens(socket, 'close');
    const before = process.memoryUsage().rss;
    const piece = withLengthPrefix(Buffer.concat([Buffer.from([14, 0x80, 0x80, 4]), Buffer.alloc(65_536)]));
    for (let i = 0; i < 2_000 && !socket.destroyed; i++) {
      if (!socket.write(piece)) await Promise.race([happens(socket, 'drain'), ended]);
    }
    await b.log.heard(`closed ${own.session} a flood of gossip`);
    expect(process.memoryUsage().rss - before).toBeLessThan(128 * 1024 * 1024);
    a.channels.get(b.own.session)?.gossip(text('unmoved'));
    await b.log.heard('gossip unmoved');
  });

  it('a message that comes byte by byte is read', async () => {
    const b = await Node.start();
    const { socket } = await byHand(b);
    for (const byte of withLengthPrefix(Buffer.from([14, 3, 0x61, 0x62, 0x63]))) socket.write(Buffer.from([byte]));
    await b.log.heard('gossip abc');
  });

  it('a reader that stops loses news; what waits for it stays bounded', async () => {
    const [a, b] = await Promise.all([Node.start(), Node.start()]);
    const { socket, own } = await byHand(b);
    socket.pause();
    let dropped = 0;
    for (let i = 0; i < 400; i++) {
      if (b.channels.get(own.session)?.gossip(Buffer.alloc(60_000)) === false) dropped++;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(dropped).toBeGreaterThan(50);
    expect(b.channels.get(own.session)?.waiting ?? 0).toBeLessThan(1024 * 1024);
    await a.dial(b);
    await b.log.heard(`opened ${a.own.session}`);
  });
});
