/**
 * The engine of `bench/seal.ts`, in a separate process: a mock that repeats one event. A request's `stand_in` says how
 * many events, and how many per write; each write is its own HTTP chunk, and the next one comes in another turn of the
 * event loop. With `everyMs` one event comes at that interval, starting at `phase` (0 … 1) of it, and carries the time
 * of its write.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';

const [model = 'm'] = process.argv.slice(2);
const requestSchema = z.object({
  stand_in: z.object({ events: z.number(), perWrite: z.number(), everyMs: z.number(), phase: z.number() }),
});
const EVENT = `data: ${JSON.stringify({ id: 'chatcmpl-bench', object: 'chat.completion.chunk', created: 1, model, choices: [{ index: 0, delta: { content: ' token' }, finish_reason: null }] })}\n\n`;
const BODY_MAX_BYTES = 1024 * 1024;

async function stream(res: ServerResponse, events: number, perWrite: number): Promise<void> {
  res.socket?.setNoDelay(true);
  res.writeHead(200, { 'content-type': 'text/event-stream' });
  const together = EVENT.repeat(perWrite);
  for (let sent = 0; sent < events && !res.destroyed; sent += perWrite) {
    if (!res.write(together)) await Promise.race([once(res, 'drain'), once(res, 'close')]);
    await new Promise(setImmediate);
  }
  res.end('data: [DONE]\n\n');
}

async function paced(res: ServerResponse, events: number, everyMs: number, phase: number): Promise<void> {
  res.socket?.setNoDelay(true);
  res.writeHead(200, { 'content-type': 'text/event-stream' });
  const from = (Math.ceil(performance.now() / everyMs) + phase) * everyMs;
  for (let sent = 0; sent < events && !res.destroyed; sent++) {
    await sleep(Math.max(0, from + sent * everyMs - performance.now()));
    res.write(EVENT.replace('"created":1', `"at":${performance.timeOrigin + performance.now()}`));
  }
  res.end('data: [DONE]\n\n');
}

const server = createServer(async (req, res) => {
  if (req.url === '/v1/models') {
    res.end(JSON.stringify({ object: 'list', data: [{ id: model, object: 'model', max_model_len: 1_000_000 }] }));
    return;
  }
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of req) {
    if (!Buffer.isBuffer(piece)) continue;
    bytes += piece.length;
    if (bytes > BODY_MAX_BYTES) return void res.destroy();
    pieces.push(piece);
  }
  if (req.method !== 'POST') return void res.end('{}');
  const asked = requestSchema.safeParse(JSON.parse(Buffer.concat(pieces).toString())).data;
  if (asked === undefined) return void res.writeHead(404).end('{}');
  const { events, perWrite, everyMs, phase } = asked.stand_in;
  await (everyMs > 0 ? paced(res, events, everyMs, phase) : stream(res, events, perWrite));
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (typeof address === 'object' && address !== null) console.log(`engine at http://127.0.0.1:${address.port}`);
});
