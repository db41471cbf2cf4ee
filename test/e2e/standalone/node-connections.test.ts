/** The limits on connections, with low limits: TCP connections to a server of this test. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ClientConnections, networkOf } from '../../../gateway/hosts/node/client-connections.ts';

let server: Server;
let connections: ClientConnections;
const accepted: Socket[] = [];
const opened: Socket[] = [];

beforeAll(async () => {
  server = createServer((socket) => {
    connections.add(socket.on('error', () => {}));
    accepted.push(socket);
    server.emit('place');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});

afterAll(() => {
  for (const socket of opened) socket.destroy();
  server.close();
});

/** Opens a connection from 127.0.0.`host` and returns the server's end. */
async function open(host: number): Promise<Socket> {
  const { port } = server.address() as AddressInfo;
  const came = once(server, 'place');
  opened.push(connect({ port, host: '127.0.0.1', localAddress: `127.0.0.${host}` }).on('error', () => {}));
  await came;
  const last = accepted.at(-1);
  if (last === undefined) throw new Error('no connection came');
  return last;
}

function prove(socket: Socket, holder?: string): void {
  const connection = connections.of(socket);
  if (connection === undefined) throw new Error('it has no place');
  connections.prove(connection, holder);
}

function upgrade(socket: Socket): boolean {
  const connection = connections.of(socket);
  if (connection === undefined) throw new Error('it has no place');
  return connections.upgrade(connection);
}

const closed = (sockets: Socket[]) => sockets.map(({ destroyed }) => destroyed);

it('an address that opens more than its share loses its own oldest, and nobody else loses any', async () => {
  connections = new ClientConnections({ max: 10, unproven: 8, unprovenPerAddress: 2 });
  const other = await open(2);
  const own = [await open(3), await open(3), await open(3), await open(3)];
  expect(closed(own)).toEqual([true, true, false, false]);
  expect(other.destroyed).toBe(false);
  expect(connections.size).toBe(3);
});

it('many addresses that share all places lose theirs before a proven connection does, and a newcomer gets a place', async () => {
  connections = new ClientConnections({ max: 6, unproven: 4, unprovenPerAddress: 2 });
  const proven = [await open(2), await open(2)];
  for (const socket of proven) prove(socket);
  const silent = [await open(3), await open(3), await open(4), await open(5)];
  const newcomer = await open(6);
  prove(newcomer);
  expect(closed(silent)).toEqual([true, false, false, false]);
  expect(closed([...proven, newcomer])).toEqual([false, false, false]);
  expect(connections.size).toBeLessThanOrEqual(6);
});

it('where only proven connections are left, one that waits for its next request gives way, and WebSockets stay', async () => {
  connections = new ClientConnections({ max: 1, unproven: 1, unprovenPerAddress: 1 });
  const agent = await open(2);
  expect(upgrade(agent)).toBe(true);
  const idle = await open(3);
  prove(idle);
  const newcomer = await open(4);
  expect(closed([agent, idle, newcomer])).toEqual([false, true, false]);
});

it('agents take no places of clients, nor clients those of agents, and both have a maximum', async () => {
  connections = new ClientConnections({ max: 3, webSockets: 2, unproven: 2, unprovenPerAddress: 2 });
  const agents = [await open(2), await open(2)];
  expect(agents.map(upgrade)).toEqual([true, true]);
  const clients: Socket[] = [];
  for (const holder of ['a', 'b', 'c']) {
    const socket = await open(3);
    prove(socket, holder);
    clients.push(socket);
  }
  expect(closed([...agents, ...clients])).toEqual([false, false, false, false, false]);
  const late = await open(4);
  expect(closed([...agents, ...clients]), 'a fourth client').toEqual([false, false, true, false, false]);
  expect(upgrade(late), 'a third agent').toBe(false);
  const gone = once(agents[0] as Socket, 'close');
  agents[0]?.destroy();
  await gone;
  expect(upgrade(late), 'a closed WebSocket gives its place back').toBe(true);
  expect(connections.size).toBe(4);
});

it('one key does not hold all places: what it opens beyond its share gives way as a stranger’s does', async () => {
  connections = new ClientConnections({ max: 6, unproven: 6, unprovenPerAddress: 6, provenPerHolder: 2 });
  const held: Socket[] = [];
  for (let i = 0; i < 6; i++) {
    const socket = await open(3);
    held.push(socket);
    prove(socket, 'one key');
    const place = connections.of(socket);
    // Marks the connection as answering a request.
    if (place !== undefined) place.answering.push({} as never);
  }
  const others = [await open(4), await open(5)];
  for (const [i, socket] of others.entries()) prove(socket, `another ${i}`);
  expect(closed(others)).toEqual([false, false]);
  expect(closed(held)).toEqual([false, false, true, true, false, false]);
  // A closed connection frees its share.
  const gone = once(held[0] as Socket, 'close');
  held[0]?.destroy();
  await gone;
  const again = await open(3);
  prove(again, 'one key');
  expect(connections.of(again)?.proven).toBe(true);
});

it('a closed connection gives its place back', async () => {
  connections = new ClientConnections({ max: 10, unproven: 2, unprovenPerAddress: 2 });
  const first = await open(2);
  const gone = once(first, 'close');
  first.destroy();
  await gone;
  expect(connections.size).toBe(0);
  const two = [await open(2), await open(2)];
  expect(closed(two)).toEqual([false, false]);
});

it.each([
  ['10.0.0.7', '10.0.0.7'],
  ['::ffff:10.0.0.7', '10.0.0.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
  ['2001:db8::5', '2001:db8:0:0'],
  ['fe80::1%eth0', 'fe80:0:0:0'],
  ['::1', '0:0:0:0'],
])('%s counts as %s', (address, network) => expect(networkOf(address)).toBe(network));
