import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { endAll, eventually, Managed, memoryOf, temporaryDirectory } from '../../support/processes.ts';
import { NODE, ROOT } from '../../support/where.ts';

const MIB = 1024 * 1024;

interface Door {
  process: Managed;
  port: number;
  workerd: number;
  url: string;
}

async function openDoor(...args: string[]): Promise<Door> {
  const [script, worker] = ['door.ts', 'fixture-worker.js'].map((name) => join(ROOT, 'test/e2e/standalone', name));
  const process = new Managed([NODE, script ?? '', worker ?? '', await temporaryDirectory(), ...args], {
    label: 'door',
  });
  const [, port, workerd] = await process.line(/door (\d+) (\d+)/, 20_000);
  return { process, port: Number(port), workerd: Number(workerd), url: `http://127.0.0.1:${port}` };
}

let door: Door;
beforeAll(async () => {
  door = await openDoor();
});
afterAll(endAll);

async function rawClient(request: string, to = door): Promise<Socket> {
  const socket = connect(to.port, '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(request);
  return socket;
}

const get = (path: string, more = '') => `GET ${path} HTTP/1.1\r\nhost: door\r\n${more}\r\n`;
const json = async (path: string): Promise<unknown> => (await fetch(door.url + path)).json();

/** Before that there is nobody in the Worker whom a client could leave: a leaving ends what it finds of the connection at once. */
async function expectBegun(id: string): Promise<void> {
  await eventually(`${id} is with the Worker`, 10_000, async () => {
    const begun = await json('/begun');
    return Array.isArray(begun) && begun.includes(id) ? true : undefined;
  });
}

/** Within a second, and only then: the Worker must not find out by a timer of its own. */
async function expectLeft(id: string): Promise<void> {
  await eventually(`the Worker hears that ${id} left`, 1_000, async () => {
    const left = await json('/left');
    return Array.isArray(left) && left.includes(id) ? true : undefined;
  });
}

test('a fetch that is aborted before any answer ends the request inside the Worker', async () => {
  const abort = new AbortController();
  const waiting = fetch(`${door.url}/prefill?id=fetch`, { signal: abort.signal });
  await expectBegun('fetch');
  abort.abort();
  await expect(waiting).rejects.toThrow();
  await expectLeft('fetch');
});

test('a plain FIN before any answer does so too, as curl sends it', async () => {
  const socket = await rawClient(get('/prefill?id=fin'));
  await expectBegun('fin');
  socket.resume().end();
  await Promise.all([expectLeft('fin'), once(socket, 'close')]);
});

test('leaving in the middle of a stream cancels its body', async () => {
  const abort = new AbortController();
  const response = await fetch(`${door.url}/stall?id=stream`, { signal: abort.signal });
  const reader = response.body?.getReader();
  expect((await reader?.read())?.value).toEqual(new TextEncoder().encode('data: 1\n\n'));
  abort.abort();
  await expectLeft('stream');
});

test('requests in one packet are all answered, on one connection', async () => {
  const socket = await rawClient(get('/a') + get('/b') + get('/c'));
  let text = '';
  socket.setEncoding('utf8').on('data', (piece: string) => {
    text += piece;
  });
  await eventually('three answers', 5_000, () => (text.split('HTTP/1.1 200').length === 4 ? true : undefined));
  socket.end();
});

test('a client that does not read 100 MiB holds them up at their source, and can have them all afterwards', async () => {
  const before = { door: memoryOf(door.process.pid).rssMib, workerd: memoryOf(door.workerd).rssMib };
  const socket = await rawClient(get('/download?chunks=1600', 'connection: close\r\n'));
  socket.pause();
  let last: unknown = -1;
  await eventually('the source stands still', 20_000, async () => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    const now = await json('/pulled');
    const still = now === last && now !== 0;
    last = now;
    return still ? true : undefined;
  });
  // Kernel buffers of three sockets and one chunk in each hand; 100 MiB would be 1600 chunks.
  expect(last).toBeLessThan(24 * MIB);
  expect(memoryOf(door.process.pid).rssMib - before.door).toBeLessThan(24);
  expect(memoryOf(door.workerd).rssMib - before.workerd).toBeLessThan(48);
  let bytes = 0;
  socket.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  socket.resume();
  await once(socket, 'end');
  expect(bytes).toBeGreaterThan(100 * MIB);
  expect(bytes).toBeLessThan(101 * MIB);
  expect(memoryOf(door.process.pid).rssMib - before.door).toBeLessThan(64);
});

test('a Worker that does not read 100 MiB holds up the client that sends them', async () => {
  const before = memoryOf(door.process.pid).rssMib;
  const socket = await rawClient(`POST /unread HTTP/1.1\r\nhost: door\r\ncontent-length: ${100 * MIB}\r\n\r\n`);
  const chunk = Buffer.alloc(MIB);
  let sent = 0;
  const push = () => {
    while (sent < 100 && socket.write(chunk)) sent += 1;
  };
  socket.on('drain', push);
  push();
  let last = -1;
  await eventually('the sender stands still', 20_000, async () => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    const still = sent === last;
    last = sent;
    return still ? true : undefined;
  });
  expect(sent).toBeLessThan(24);
  expect(memoryOf(door.process.pid).rssMib - before).toBeLessThan(24);
  socket.destroy();
});

test('a body goes there and back byte for byte', async () => {
  const sent = Buffer.alloc(8 * MIB, 'gateway\u0000\r\n');
  const response = await fetch(`${door.url}/echo`, { method: 'POST', body: sent });
  expect(Buffer.from(await response.arrayBuffer()).equals(sent)).toBe(true);
});

test('WebSockets pass, text and bytes, and so does their end', async () => {
  const socket = new WebSocket(`${door.url.replace('http', 'ws')}/websocket`);
  await once(socket, 'open');
  socket.send('hello');
  expect(String((await once(socket, 'message'))[0])).toBe('hello');
  socket.send(Buffer.alloc(MIB, 7));
  expect((await once(socket, 'message'))[0]).toEqual(Buffer.alloc(MIB, 7));
  socket.close(4_001);
  await expectLeft('closed 4001');
});

test('noise is answered or closed, and nobody else notices', async () => {
  for (const noise of [
    '\u0016\u0003\u0001\u0002',
    'GET',
    '\r\n\r\n\r\n',
    'x'.repeat(200_000),
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  ]) {
    const socket = await rawClient(noise);
    socket.resume().end();
    await once(socket, 'close');
  }
  expect(await (await fetch(door.url)).text()).toBe('ok');
});

test('more connections than it may have are told so, and room comes back', async () => {
  const small = await openDoor('3');
  const held = await Promise.all([1, 2, 3].map(() => rawClient(get('/prefill?id=held'), small)));
  const refused = await eventually('a refusal', 5_000, async () => {
    const response = await fetch(small.url);
    return response.status === 503 ? response : undefined;
  });
  expect(await refused.json()).toMatchObject({ error: { code: 'server_is_overloaded', param: null } });
  expect(Number(refused.headers.get('retry-after'))).toBeLessThanOrEqual(60);
  for (const socket of held) socket.destroy();
  await eventually('room', 5_000, async () => ((await fetch(small.url)).ok ? true : undefined));
});

test('ending lets a running answer finish, takes nobody new and does not wait for the idle', async () => {
  const own = await openDoor();
  const idle = await rawClient(get('/a'), own);
  const response = await fetch(`${own.url}/tokens`);
  own.process.signal('SIGTERM');
  // A connection of its own each time: fetch would keep one that it has.
  await eventually('nobody new', 1_000, async () => {
    const late = connect(own.port, '127.0.0.1');
    const refused = once(late, 'connect').then(
      () => undefined,
      () => true,
    );
    return refused.finally(() => late.destroy());
  });
  expect((await response.text()).trim().split('\n\n')).toHaveLength(15);
  expect(await own.process.end(4_000)).toEqual({ code: 0, signal: null });
  idle.destroy();
});

test('an answer that workerd dies over never looks complete; its clients get 503 until it is back', async () => {
  const own = await openDoor();
  const response = await fetch(`${own.url}/stall?id=cut`);
  const reader = response.body?.getReader();
  await reader?.read();
  process.kill(own.workerd, 'SIGKILL');
  await expect(reader?.read()).rejects.toThrow();
  const seen = new Set<number>();
  await eventually('workerd is back', 10_000, async () => {
    const { status } = await fetch(own.url);
    seen.add(status);
    return status === 200 ? true : undefined;
  });
  expect([...seen].every((status) => status === 503 || status === 200)).toBe(true);
  expect(own.process.output).toContain('starting it again');
});
