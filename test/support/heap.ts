/**
 * Memory that a Node process retains: its heap and its buffers after a full collection, read through its inspector.
 * Start the process with `NODE_OPTIONS=--inspect=127.0.0.1:0`.
 */
import { WebSocket } from 'ws';
import { z } from 'zod';
import { patience } from './patience.ts';
import type { Managed } from './processes.ts';

export const INSPECTED = { NODE_OPTIONS: '--inspect=127.0.0.1:0' };

const ANSWERS_MS = 30_000;
const MIB = 1024 * 1024;

const replySchema = z.object({
  id: z.number(),
  result: z.object({ usedSize: z.number().default(0), backingStorageSize: z.number().default(0) }),
});

export async function retainedMib(process: Managed): Promise<number> {
  const [, url = ''] = await process.line(/Debugger listening on (ws:\/\/\S+)/, ANSWERS_MS);
  const socket = new WebSocket(url, { handshakeTimeout: patience(ANSWERS_MS) });
  try {
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    const ask = (id: number, method: string) =>
      new Promise<number>((resolve, reject) => {
        const timer = setTimeout(
          () => reject(new Error(`${method}: no answer within ${ANSWERS_MS} ms`)),
          patience(ANSWERS_MS),
        );
        socket.on('message', (data) => {
          const reply = replySchema.safeParse(JSON.parse(String(data)));
          if (!reply.success || reply.data.id !== id) return;
          clearTimeout(timer);
          resolve(reply.data.result.usedSize + reply.data.result.backingStorageSize);
        });
        socket.send(JSON.stringify({ id, method }));
      });
    await ask(1, 'HeapProfiler.enable');
    await ask(2, 'HeapProfiler.collectGarbage');
    return (await ask(3, 'Runtime.getHeapUsage')) / MIB;
  } finally {
    socket.terminate();
  }
}
