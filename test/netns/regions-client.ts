/**
 * `node test/netns/regions-client.ts GATEWAY IN OUT`: reads keys and requests of one region from the file IN, sends each
 * request at its time, and writes the responses to the file OUT.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';

const inputSchema = z.object({
  /** Key by model. */
  keys: z.record(z.string(), z.string()),
  startAt: z.number(),
  /** A week at 60 times its speed with 2 requests/s has 20,160. */
  requests: z.array(z.object({ afterMs: z.number(), delayMs: z.number() })).max(50_000),
});

const [gateway = '', input = '', output = ''] = process.argv.slice(2);
const { keys, startAt, requests } = inputSchema.parse(JSON.parse(readFileSync(input, 'utf8')));
const answers: unknown[] = [];

async function ask(model: string, key: string, afterMs: number, delayMs: number): Promise<void> {
  const startedAt = performance.now();
  const messages = [{ role: 'user', content: 'Say something.' }];
  const answer = { model, afterMs, delayMs, status: 0, node: '', ms: 0 };
  try {
    const response = await fetch(`${gateway}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages, stand_in: { tokens: 1, delayMs } }),
    });
    await response.arrayBuffer();
    answer.status = response.status;
    answer.node = response.headers.get('x-otela-node') ?? '';
  } catch {
    // Status 0 is a failure of the connection, which the test reports.
  }
  answers.push({ ...answer, ms: performance.now() - startedAt });
}

const open: Promise<void>[] = [];
for (const { afterMs, delayMs } of requests) {
  await sleep(Math.max(0, startAt + afterMs - Date.now()));
  for (const [model, key] of Object.entries(keys)) open.push(ask(model, key, afterMs, delayMs));
}
await Promise.all(open);
writeFileSync(output, JSON.stringify(answers));
