/**
 * The client of `bench/seal.ts`, a process of its own: decryption is not measured on the gateway's core. One line of JSON on stdin is one
 * round, one on stdout its seconds, this process's CPU seconds, and of paced
 * streams the 99th percentile of milliseconds from the engine's write to here. `unopened` seals and drains, and opens nothing.
 */
import { createInterface } from 'node:readline';
import * as z from 'zod';
import { sealedFetch } from '../clients/seal/index.ts';
import { quantile } from './stats.ts';

const settings = z
  .object({ base: z.string(), key: z.string(), model: z.string(), pins: z.record(z.string(), z.string()) })
  .parse(JSON.parse(process.argv[2] ?? ''));
const roundSchema = z.object({
  how: z.enum(['clear', 'sealed', 'unopened']),
  streams: z.number(),
  events: z.number(),
  perWrite: z.number(),
  /** 0: unpaced. */
  everyMs: z.number(),
});
export type Round = z.infer<typeof roundSchema>;

/** All streams begin at once, and this one process seals for all of them: what is late meanwhile says nothing of streams. */
const STARTING_MS = 2_000;
const UNOPENED = 418;
const drain: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  if (init?.method !== 'POST') return response;
  for await (const _ of response.body ?? []);
  return new Response(null, { status: UNOPENED });
};
const { pins } = settings;
const fetches = { clear: fetch, sealed: sealedFetch({ pins }), unopened: sealedFetch({ pins, fetch: drain }) };

async function ask({ how, events, perWrite, everyMs }: Round, late: number[]): Promise<void> {
  const begun = performance.now();
  const response = await fetches[how](`${settings.base}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${settings.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: settings.model,
      messages: [{ role: 'user', content: 'x' }],
      stream: true,
      stand_in: { events, perWrite, everyMs },
    }),
  });
  if (response.status === UNOPENED) return;
  let [bytes, end] = [0, ''];
  for await (const piece of response.body ?? []) {
    bytes += piece.length;
    if (everyMs > 0 && performance.now() - begun > STARTING_MS) {
      const now = performance.timeOrigin + performance.now();
      for (const [, at] of new TextDecoder().decode(piece).matchAll(/"at":([\d.]+)/g)) late.push(now - Number(at));
    }
    end = new TextDecoder().decode(piece.subarray(-16));
  }
  if (!response.ok || !end.endsWith('data: [DONE]\n\n') || bytes < events * 100)
    throw new Error(`${how}: ${response.status} ${bytes} ${end}`);
}

for await (const line of createInterface({ input: process.stdin })) {
  const round = roundSchema.parse(JSON.parse(line));
  const [from, cpu] = [performance.now(), process.cpuUsage()];
  const late: number[] = [];
  await Promise.all(Array.from({ length: round.streams }, () => ask(round, late)));
  const { user, system } = process.cpuUsage(cpu);
  console.log(
    JSON.stringify({
      seconds: (performance.now() - from) / 1000,
      cpu: (user + system) / 1e6,
      p99: late.length === 0 ? 0 : quantile(late, 0.99),
    }),
  );
}
