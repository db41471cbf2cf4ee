/** How the Node host writes a response if the object has the rest of it. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type Server } from 'node:http';
import { afterEach, expect, test } from 'vitest';
import { LocalOffloads, type ResponseSocket } from '../../../gateway/hosts/node/local-offload.ts';
import { NodeRequest } from '../../../gateway/hosts/node/node-request.ts';
import { writeAnswer } from '../../../gateway/hosts/node/write-response.ts';
import type { OffloadedStream } from '../../../gateway/tunnel/offload/offloaded-stream.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { eventually } from '../../support/processes.ts';

const PIECE_BYTES = 64 * 1024;
/** An object writes another piece only if the grant covers the piece and an error after it. */
const ROOM_BYTES = PIECE_BYTES + 4 * 1024;

let server: Server | undefined;

afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** A mock of an object that has `total` bytes after the first five, and all of them are ready. */
class Full {
  sent = 0;
  left = false;
  readonly #total: number;
  sink: ResponseSocket | undefined;

  constructor(total: number) {
    this.#total = total;
  }

  grant(limit: number): void {
    while (limit - this.sent >= ROOM_BYTES && this.sent < this.#total) {
      const size = Math.min(PIECE_BYTES, this.#total - this.sent);
      this.sent += size;
      this.sink?.write(new Uint8Array(size).fill(120));
    }
    if (this.sent === this.#total) this.sink?.end();
  }

  leave(): void {
    this.left = true;
  }
}

/** Sends a request to a server that answers from `full`; the client reads nothing yet. */
async function answered(full: Full): Promise<IncomingMessage> {
  const offloads = new LocalOffloads();
  const number = offloads.add(full as unknown as OffloadedStream);
  const take = offloads.take.bind(offloads);
  offloads.take = (taken, sink) => {
    full.sink = sink;
    return take(taken, sink);
  };
  server = createServer((message, response) => {
    const asked = new NodeRequest(
      { message, response, encrypted: false, accepted: () => {} },
      '/v1/x',
      Buffer.alloc(0),
    );
    const headers = { 'content-type': 'text/event-stream' };
    neverRejects(
      writeAnswer(asked.client, response, { status: 200, headers, body: Buffer.from('first'), rest: number }, offloads),
    );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
  const [answer] = (await once(request({ port, host: '127.0.0.1', agent: false }).end(), 'response')) as [
    IncomingMessage,
  ];
  return answer;
}

test('all of a long answer arrives, in its order', async () => {
  const full = new Full(8 * 1024 * 1024 + 1);
  const answer = await answered(full);
  const parts: Buffer[] = [];
  for await (const part of answer) parts.push(part as Buffer);
  const body = Buffer.concat(parts);
  expect(body.length).toBe(5 + full.sent);
  expect(body.subarray(0, 6).toString()).toBe('firstx');
});

test('a client that does not read holds its object back, and one that leaves is told to it', async () => {
  const full = new Full(256 * 1024 * 1024);
  const answer = await answered(full);
  const stalled = await eventually('a standstill', 10_000, async () => {
    const before = full.sent;
    await new Promise((resolve) => setTimeout(resolve, 200)); // asserts that nothing happens in this time
    return before > 0 && before === full.sent ? full.sent : undefined;
  });
  // At most the kernel's buffers at both ends, and the bytes that may wait in the process, were taken from the object.
  expect(stalled).toBeLessThan(16 * 1024 * 1024);
  answer.destroy();
  await eventually('that the client left', 5_000, () => (full.left ? true : undefined));
});
