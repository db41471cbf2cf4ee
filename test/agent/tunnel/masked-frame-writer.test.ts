import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import { MaskedFrameWriter } from '../../../agent/tunnel/masked-frame-writer.ts';

const server = new WebSocketServer({ port: 0, maxPayload: 2 * 1024 * 1024 });
afterAll(() => new Promise((resolve) => server.close(resolve)));

/** An upgraded connection, and what the other end reads from the frames on it. */
async function upgraded(): Promise<{ socket: Socket; next: () => Promise<Buffer> }> {
  await (server.address() === null ? once(server, 'listening') : undefined);
  const address = server.address();
  const socket = connect(typeof address === 'object' && address !== null ? address.port : 0, '127.0.0.1');
  const got: Buffer[] = [];
  const waiting: ((message: Buffer) => void)[] = [];
  server.once('connection', (peer) =>
    peer.on('message', (data: Buffer, isBinary) => {
      if (!isBinary) return;
      const take = waiting.shift();
      if (take === undefined) got.push(data);
      else take(data);
    }),
  );
  const head = [
    'GET / HTTP/1.1',
    'host: test',
    'connection: upgrade',
    'upgrade: websocket',
    'sec-websocket-version: 13',
    'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==',
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n`);
  await once(socket, 'data');
  const next = async () => got.shift() ?? new Promise<Buffer>((resolve) => waiting.push(resolve));
  return { socket, next };
}

const LENGTHS = [0, 1, 2, 3, 4, 5, 125, 126, 127, 4_095, 65_535, 65_536, 65_537, 262_144, 400_000, 1_000_001];

it('a message of any length arrives as it was, in memory that is used again', async () => {
  const { socket, next } = await upgraded();
  const maker = new MaskedFrameWriter();
  for (const length of [...LENGTHS, ...LENGTHS]) {
    // At an odd offset in memory, like a part of another message.
    const message = new Uint8Array(length + 3).map((_, n) => n * 31).subarray(3);
    const sent = Buffer.from(message);
    const { frame, release } = maker.make(message);
    await new Promise((resolve) => socket.write(frame, resolve));
    release();
    expect((await next()).equals(sent)).toBe(true);
    expect(sent.equals(message)).toBe(true);
  }
  socket.destroy();
});

it('frames on their way do not share memory, and no two have the same mask', () => {
  const maker = new MaskedFrameWriter();
  const made = Array.from({ length: 100 }, (_, n) => maker.make(new Uint8Array(50).fill(n)));
  const masks = new Set(made.map(({ frame }) => frame.readUInt32BE(2)));
  expect(masks.size).toBeGreaterThan(98);
  for (const [n, { frame }] of made.entries()) {
    const plain = frame.subarray(6).map((byte, at) => byte ^ (frame[2 + (at % 4)] ?? 0));
    expect(plain).toEqual(Buffer.alloc(50, n));
  }
});
