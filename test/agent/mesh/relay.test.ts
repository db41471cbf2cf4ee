/** A relay forwards bytes only to its gateways, and only for agents that hold its join token. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { Listener } from '../../../agent/mesh/channel/channel-listener.ts';
import { sessionContext } from '../../../agent/mesh/channel/channel-tls.ts';
import { ProxyRelay } from '../../../agent/mesh/proxy-relay/proxy-relay.ts';
import { relayProxyUrl } from '../../../agent/mesh/proxy-relay/relay-credentials.ts';
import { throughProxy } from '../../../agent/tunnel/open-websocket.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { identity, NO_RELEASES, openTicket } from './node.ts';

afterEach(endAll);

const TOKEN = 'join-token-of-the-lab';

/** A server that sends back every byte. */
async function echo(): Promise<{ url: URL; server: Server; sockets: Set<Socket> }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => {});
    socket.pipe(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const address = server.address();
  return { url: new URL(`http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`), server, sockets };
}

async function relayTo(
  gateways: URL[],
  offered: boolean,
): Promise<{ address: string; relay: ProxyRelay; port: number }> {
  const own = identity();
  const relay = new ProxyRelay({ gateways, tokens: [TOKEN], offered, env: {}, log: () => {} });
  const listener = new Listener({
    own: { context: sessionContext(own), ticket: own.ticket, releases: NO_RELEASES },
    openTicket,
    onProven: ({ socket }) => socket.destroy(),
    onConnect: (socket) => neverRejects(relay.take(socket)),
  });
  const port = await listener.open('127.0.0.1', 0);
  atEnd(() => {
    listener.close();
    relay.close();
  });
  return { address: `127.0.0.1:${port}`, relay, port };
}

it('a stranger’s connection that fails in an unforeseen way ends only itself', async () => {
  const own = identity();
  const listener = new Listener({
    own: { context: sessionContext(own), ticket: own.ticket, releases: NO_RELEASES },
    openTicket,
    onProven: ({ socket }) => socket.destroy(),
    // A rejection that is not handled would fail the run.
    onConnect: () => {
      throw new TypeError('unforeseen');
    },
  });
  atEnd(() => listener.close());
  const socket = connect(await listener.open('127.0.0.1', 0), '127.0.0.1');
  expect(await answer(socket, 'CONNECT a:1 HTTP/1.1\r\n\r\n', 1)).toBe('');
});

const through = (address: string, target: URL, token = TOKEN) =>
  throughProxy(relayProxyUrl(address, target.host, token), target);

/** The response to `bytes`, up to `length` bytes or the end. */
function answer(socket: Socket, bytes: Uint8Array | string, length: number): Promise<string> {
  return new Promise((resolve) => {
    let got = '';
    const look = (piece: string) => {
      got += piece;
      if (got.length >= length) resolve(got);
    };
    socket
      .setEncoding('latin1')
      .on('data', look)
      .on('close', () => resolve(got))
      .on('error', () => {});
    socket.write(bytes);
  });
}

describe('with the join token', () => {
  it('a node reaches the gateway, both ways', async () => {
    const gateway = await echo();
    const { address, relay } = await relayTo([gateway.url], true);
    const socket = await through(address, gateway.url);
    expect(await answer(socket, 'hello gateway', 13)).toBe('hello gateway');
    socket.destroy();
    await eventually('both ends closed', 5_000, () => (relay.open + gateway.sockets.size === 0 ? true : undefined));
  });

  it('a node gets through an agent that is no relay for as much as an admission needs, no more', async () => {
    const gateway = await echo();
    const { address } = await relayTo([gateway.url], false);
    const socket = await through(address, gateway.url);
    expect(await answer(socket, 'x'.repeat(4_000), 4_000)).toHaveLength(4_000);
    const more = await answer(socket, 'x'.repeat(100_000), 100_000);
    expect(more.length).toBeLessThan(64 * 1024);
    expect(socket.destroyed).toBe(true);
  });

  it('connections reach only the gateways that the relay was given', async () => {
    const [gateway, other] = [await echo(), await echo()];
    const { address } = await relayTo([gateway.url], true);
    await expect(through(address, other.url)).rejects.toThrow();
    expect(other.sockets.size).toBe(0);
  });

  it('a gateway that is away ends the connection', async () => {
    const gateway = await echo();
    gateway.server.close();
    const { address, relay } = await relayTo([gateway.url], true);
    await expect(through(address, gateway.url)).rejects.toThrow();
    await eventually('nothing is left', 5_000, () => (relay.open === 0 ? true : undefined));
  });
});

describe('without it', () => {
  it('an unauthenticated caller gets no byte, and the gateway does not see it', async () => {
    const gateway = await echo();
    const { address, port } = await relayTo([gateway.url], true);
    await expect(through(address, gateway.url, 'another token')).rejects.toThrow();
    const pass = relayProxyUrl(address, 'other.example:443', TOKEN);
    await expect(throughProxy(pass, gateway.url)).rejects.toThrow();
    const heads = [
      `CONNECT ${gateway.url.host} HTTP/1.1\r\nhost: x\r\n\r\n`,
      `CONNECT ${gateway.url.host} HTTP/1.1\r\nproxy-authorization: Basic !!!\r\n\r\n`,
      `CONNECT ${gateway.url.host} HTTP/1.1\r\nproxy-authorization: Bearer ${TOKEN}\r\n\r\n`,
      `CONN\r\n\r\n`,
      `CONNECT x\r\n${'a: b\r\n'.repeat(10_000)}`,
    ];
    for (const head of heads) {
      const got = await answer(connect(port, '127.0.0.1'), head, 1);
      expect(got).toBe('');
    }
    expect(gateway.sockets.size).toBe(0);
  });

  it('many unfinished connections keep no other connection away', async () => {
    const gateway = await echo();
    const { address, port } = await relayTo([gateway.url], false);
    const crowd = Array.from({ length: 300 }, () => {
      const socket = connect(port, '127.0.0.1', () => socket.write('CONNECT x'));
      return socket.on('error', () => {});
    });
    await Promise.all(crowd.slice(-1).map((socket) => new Promise((resolve) => socket.once('connect', resolve))));
    const socket = await through(address, gateway.url);
    expect(await answer(socket, 'hello', 5)).toBe('hello');
    for (const one of crowd) one.destroy();
  });

  it('the pass shows nothing of the token', () => {
    const pass = relayProxyUrl('10.0.0.1:7', 'gateway.example:443', TOKEN);
    expect(pass.href).not.toContain(TOKEN);
    expect(pass.href).not.toContain(Buffer.from(TOKEN).toString('base64url'));
  });
});
