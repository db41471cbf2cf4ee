/** An unauthenticated peer gets no byte, and does not block other agents. */
import { connect, type Socket } from 'node:net';
import { connect as tlsConnect } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import { sessionContext } from '../../../agent/mesh/channel/channel-tls.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { answerTo, introduce } from './by-hand.ts';
import { identity, Node } from './node.ts';

afterEach(endAll);

const text = (bytes: string) => Buffer.from(bytes);

describe('a stranger gets no byte', () => {
  const cases: [string, () => Uint8Array][] = [
    ['that speaks HTTP', () => text('GET / HTTP/1.1\r\nhost: x\r\n\r\n')],
    ['that asks for a tunnel', () => text('CONNECT example.org:443 HTTP/1.1\r\nhost: example.org:443\r\n\r\n')],
    ['that speaks TLS', () => Buffer.from('160301020001000', 'hex')],
    ['with another version', () => text('otela-mesh-9\n\0\x02xx')],
    ['with a ticket that is none', () => introduce(text('x'.repeat(400)))],
    ['with an empty ticket', () => text('otela-mesh-1\n\0\0')],
    ['with a ticket beyond the limit', () => Buffer.concat([text('otela-mesh-1\n'), Buffer.alloc(65_535, 255)])],
    ['with half a ticket', () => introduce(identity().ticket).subarray(0, -5)],
    ['that says nothing', () => text('')],
  ];
  it.each(cases)('%s', async (_, bytes) => {
    const node = await Node.start(identity(), { handshakeMs: 300 });
    expect(await answerTo(node.port, bytes())).toBe(0);
    expect(node.listener.pending).toBe(0);
    expect(node.log.lines).toEqual([]);
  });

  it.each(['another key', 'no certificate'])(
    'with a copied ticket and %s: TLS begins and nothing comes in it',
    async (how) => {
      const [node, honest, thief] = [await Node.start(), identity(), identity()];
      const socket = connect(node.port, '127.0.0.1');
      socket.write(introduce(honest.ticket));
      const keys = how === 'another key' ? { secureContext: sessionContext(thief) } : {};
      const secured = tlsConnect({ socket, rejectUnauthorized: false, ...keys });
      let got = 0;
      secured.on('data', (piece) => {
        got += piece.length;
      });
      secured.on('error', () => {});
      await new Promise((resolve) => secured.on('close', resolve));
      expect(got).toBe(0);
      expect(node.log.lines).toEqual([]);
    },
  );
});

describe('floods of connections', () => {
  it('that say nothing push each other out; an honest agent gets its channel at once', async () => {
    const node = await Node.start(identity(), { unauthenticated: 20, handshakeMs: 60_000 });
    const sockets: Socket[] = [];
    for (let i = 0; i < 300; i++) {
      const socket = connect(node.port, '127.0.0.1');
      socket.on('error', () => {});
      sockets.push(socket);
    }
    const honest = await Node.start();
    await honest.dial(node, node.own.session);
    await node.log.heard(`opened ${honest.own.session}`);
    expect(node.listener.pending).toBeLessThanOrEqual(20);
    for (const socket of sockets) socket.destroy();
  });

  it('with a copied ticket hold four places, and its owner still gets in', async () => {
    const node = await Node.start(identity(), { handshakeMs: 60_000 });
    const honest = await Node.start();
    const sockets: Socket[] = [];
    for (let i = 0; i < 50; i++) {
      const socket = connect(node.port, '127.0.0.1', () => socket.write(introduce(honest.own.ticket)));
      socket.on('error', () => {});
      sockets.push(socket);
    }
    await eventually('all are read', 5_000, () => (sockets.filter((s) => s.destroyed).length >= 46 ? true : undefined));
    expect(node.listener.pending).toBeLessThanOrEqual(4);
    await honest.dial(node, node.own.session);
    await node.log.heard(`opened ${honest.own.session}`);
    for (const socket of sockets) socket.destroy();
  });

  it('with new tickets are checked so many times a second and no more', async () => {
    const node = await Node.start(identity(), { ticketsBurst: 5, ticketsPerSecond: 1 });
    for (let i = 0; i < 20; i++) await answerTo(node.port, introduce(text('x'.repeat(38))));
    const honest = await Node.start();
    await expect(honest.dial(node)).rejects.toMatchObject({ code: 'broken' });
  });
});
