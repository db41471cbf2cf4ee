/**
 * The client of `bench/seal.ts`, in a separate process, so that decryption is not measured on the gateway's core. One
 * line of JSON on stdin is one round; one on stdout has its seconds, and for paced streams the 99th percentile of
 * milliseconds from the engine's write to here. `unopened` seals and discards without opening; `sampled` discards all
 * but one stream in 16.
 */
import { createInterface } from 'node:readline';
import * as z from 'zod';
import { sealedFetch } from '../clients/seal/index.ts';
import { quantile } from './stats.ts';

const settings = z
  .object({ base: z.string(), key: z.string(), model: z.string(), pins: z.record(z.string(), z.string()) })
  .parse(JSON.parse(process.argv[2] ?? ''));
const roundSchema = z.object({
  how: z.enum(['clear', 'sealed', 'unopened', 'sampled']),
  streams: z.number(),
  events: z.number(),
  perWrite: z.number(),
  /** Interval of the events; 0: as fast as possible. */
  everyMs: z.number(),
});
export type Round = z.infer<typeof roundSchema>;

/**
 * All streams start together, and this one process seals for all of them, so delays shortly after the last start say
 * nothing about streams.
 */
const SETTLED_MS = 1_000;
const SAMPLED_EVERY = 16;
const UNOPENED = 418;

/** State of the current round. */
let measured = begin(0);

function begin(streams: number) {
  return { toBegin: streams, settledAt: Number.POSITIVE_INFINITY, late: [] as number[] };
}

const counted: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  if (init?.method === 'POST' && --measured.toBegin === 0) measured.settledAt = performance.now() + SETTLED_MS;
  return response;
};
const drain: typeof fetch = async (input, init) => {
  const response = await counted(input, init);
  if (init?.method !== 'POST') return response;
  for await (const _ of response.body ?? []);
  return new Response(null, { status: UNOPENED });
};
const { pins } = settings;
const fetches = {
  clear: counted,
  sealed: sealedFetch({ pins, fetch: counted }),
  unopened: sealedFetch({ pins, fetch: drain }),
};

async function ask(round: Round, nth: number): Promise<void> {
  const { how, events, perWrite, everyMs, streams } = round;
  const stand_in = { events, perWrite, everyMs, phase: nth / streams };
  const sampled = nth % SAMPLED_EVERY === 0 ? 'sealed' : 'unopened';
  const response = await fetches[how === 'sampled' ? sampled : how](`${settings.base}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${settings.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: settings.model,
      messages: [{ role: 'user', content: 'x' }],
      stream: true,
      stand_in,
    }),
  });
  if (response.status === UNOPENED) return;
  let [bytes, end] = [0, ''];
  for await (const piece of response.body ?? []) {
    bytes += piece.length;
    if (everyMs > 0 && performance.now() > measured.settledAt) {
      const now = performance.timeOrigin + performance.now();
      for (const [, at] of new TextDecoder().decode(piece).matchAll(/"at":([\d.]+)/g))
        measured.late.push(now - Number(at));
    }
    end = new TextDecoder().decode(piece.subarray(-16));
  }
  if (!response.ok || !end.endsWith('data: [DONE]\n\n') || bytes < events * 100)
    throw new Error(`${how}: ${response.status} ${bytes} ${end}`);
}

for await (const line of createInterface({ input: process.stdin })) {
  const round = roundSchema.parse(JSON.parse(line));
  const from = performance.now();
  measured = begin(round.streams);
  await Promise.all(Array.from({ length: round.streams }, (_, nth) => ask(round, nth)));
  console.log(
    JSON.stringify({
      seconds: (performance.now() - from) / 1000,
      p99: measured.late.length === 0 ? 0 : quantile(measured.late, 0.99),
    }),
  );
}
