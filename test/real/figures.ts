/** The cost of the path through gateway and agent with a real engine, measured alternately directly and through it. */
import assert from 'node:assert/strict';
import { median } from '../../bench/stats.ts';
import { hear } from '../support/streams.ts';
import { ask, newKey, type Place, type Target, targets } from './place.ts';
import { GREEDY, MESSAGES } from './questions.ts';

export const MANY = 64;

/** Tokens per second of many concurrent streams, direct and through it. */
export async function crowd(place: Place): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const body = { model: place.model, messages: MESSAGES, temperature: 1, max_tokens: 256, ignore_eos: true };
  const rate = async (target: Target) => {
    const started = performance.now();
    const answers = await Promise.all(
      Array.from({ length: MANY }, () => ask(target, '/v1/chat/completions', { ...body, stream: true })),
    );
    for (const { status, text } of answers) assert.deepEqual([status, hear(text).dones], [200, 1], text.slice(0, 300));
    return (MANY * body.max_tokens) / ((performance.now() - started) / 1_000);
  };
  const rates: [number, number][] = [];
  for (let n = 0; n < 4; n++) rates.push([await rate(direct), await rate(through)]);
  // The first pair is a warm-up.
  const [one = 0, two = 0] = [0, 1].map((side) => median(rates.slice(1).map((pair) => pair[side] ?? 0)));
  return `${one.toFixed(0)} tokens/s direct, ${two.toFixed(0)} through it: ${(two / one).toFixed(2)} (median of 3 pairs)`;
}

/** The latency of a single request, alternately direct and through it. */
export async function added(place: Place): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const body = { model: place.model, messages: MESSAGES, ...GREEDY, max_tokens: 8, stream: true };
  const first: Record<'direct' | 'through', number[]> = { direct: [], through: [] };
  for (let n = 0; n < 60; n++) {
    const d = await ask(direct, '/v1/chat/completions', body);
    const t = await ask(through, '/v1/chat/completions', body);
    if (n < 10) continue;
    first.direct.push(d.firstMs);
    first.through.push(t.firstMs);
  }
  const [d, t] = [median(first.direct), median(first.through)];
  return `first token after ${d.toFixed(2)} ms direct, ${t.toFixed(2)} through it: ${(t - d).toFixed(2)} ms (median of 50)`;
}
