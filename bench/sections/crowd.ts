/** Many concurrent streams: how much time the path adds between two tokens. */
import { seeded } from '../../test/support/random.ts';
import { request } from '../bench-cluster.ts';
import { Client, type Target } from '../client.ts';

/** Streams start within this time; the measurement begins when all are flowing. */
const RAMP_MS = 4_000;
const TAIL_BYTES = 64;

/** CLOCK_MONOTONIC in µs, like the engine's timestamps. */
function now(): number {
  const [whole, nanos] = process.hrtime();
  return whole * 1e6 + nanos / 1e3;
}

export interface Seen {
  /**
   * For each two consecutive tokens: the milliseconds by which the path lengthened the time between them. Negative if a
   * punctual token follows a late one.
   */
  added: number[];
  /** ms from the engine's write to the client's read. */
  way: number[];
  /** Maximum delay of this process's event loop, in ms. */
  late: number;
}

/** One stream; only tokens written after `from` (µs) count. */
async function watch(client: Client, bytes: Buffer, from: number, seen: Seen): Promise<boolean> {
  let rest = '';
  let last: { sent: number; got: number } | undefined;
  const timing = await client.ask(bytes, (piece) => {
    const got = now();
    const text = rest + piece.toString('latin1');
    let end = 0;
    for (const match of text.matchAll(/"content":"(\d{16})"/g)) {
      end = match.index + match[0].length;
      const sent = Number(match[1]);
      if (sent >= from && last !== undefined) {
        seen.way.push((got - sent) / 1_000);
        seen.added.push((got - last.got - (sent - last.sent)) / 1_000);
      }
      last = { sent, got };
    }
    rest = text.slice(Math.max(end, text.length - TAIL_BYTES));
  });
  return timing.complete && timing.status === 200;
}

export interface Crowd {
  streams: number;
  /** Tokens a second per stream. */
  rate: number;
  /** Duration of the measurement, once all are flowing. */
  seconds: number;
  seed: number;
}

/** Streams that start like those of independent people. @throws Error if one breaks */
export async function crowd(target: Target, { streams, rate, seconds, seed }: Crowd): Promise<Seen> {
  const random = seeded(seed);
  const seen: Seen = { added: [], way: [], late: 0 };
  const bytes = request(target, `stream ${Math.ceil((RAMP_MS / 1_000 + seconds) * rate)} ${rate}`, { stream: true });
  const from = now() + RAMP_MS * 1_000;
  let due = performance.now() + 10;
  const pulse = setInterval(() => {
    seen.late = Math.max(seen.late, performance.now() - due);
    due = performance.now() + 10;
  }, 10);
  const whole = await Promise.all(
    Array.from({ length: streams }, async () => {
      const client = new Client(target);
      await new Promise((resolve) => setTimeout(resolve, random() * RAMP_MS));
      const good = await watch(client, bytes, from, seen);
      client.close();
      return good;
    }),
  );
  clearInterval(pulse);
  const broken = whole.filter((good) => !good).length;
  if (broken > 0) throw new Error(`${broken} of ${streams} streams broke at ${rate} tokens/s`);
  return seen;
}
