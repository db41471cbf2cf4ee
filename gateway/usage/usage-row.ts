import type { Sampling } from '../../shared/openai/sampling.ts';

/** Of requests that no engine saw: they have no node. */
export const NO_SESSION = '';

/** What is kept of one attempt that reached an engine, or of a request that none did. Never a prompt or an answer. */
export interface UsageRow {
  /** The node, and the attempt's stream there: together they name the row. NO_SESSION and a random number where no engine saw it. */
  session: string;
  stream: number;
  /** The stream of an estimate that this row replaces. */
  replaces?: number;
  /** Milliseconds since the epoch. */
  at: number;
  request: string;
  attempt: number;
  provider: string;
  key: string;
  user: string;
  project: string;
  model: string;
  /** Id in the endpoint table. */
  endpoint: number;
  streamed: boolean;
  /**
   * The engine's; 0 where none came; null where that is unknown, since the gateway was restarted meanwhile. Where no engine saw it, the
   * gateway's. Unknown is no failure.
   */
  status: number | null;
  prompt: number;
  completion: number;
  cached: number;
  reasoning: number;
  /** Since the attempt was handed over; 0 where nothing came; null where unknown, as `status`. */
  firstMs: number | null;
  totalMs: number | null;
  aborted: boolean;
  estimated: boolean;
  complete: boolean;
  bytes: number;
  /** How the answer was to be drawn; absent where the request says nothing of it, or its body was not read. */
  sampling?: Sampling;
  /** Name of the kind that it was judged to be when it came; absent where its model had no kinds. */
  kind?: string;
  /** From when the request was let in to when this attempt was handed over: queues, and attempts before it. */
  queueMs?: number;
  /** Ids of what its prompt begins with, a block of 16 tokens each; empty: its engine has no tokenizer. */
  buckets?: string[];
  /** Why no engine saw it: the code of our error. */
  error?: string;
  /** How many requests alike were refused within a second; `totalMs` and `queueMs` are then their means. Absent: one. */
  times?: number;
  traced: boolean;
}

const HOUR_MS = 60 * 60_000;

/** The object that keeps what was used at a time: one per hour, UTC. */
export function usageShardOf(at: number): string {
  return new Date(Math.floor(at / HOUR_MS) * HOUR_MS).toISOString().slice(0, 13);
}

export const HOURS_PER_DAY = 24;

/** Of a day, `2026-11-20`, UTC. */
export function shardsOf(day: string): string[] {
  const from = Date.parse(`${day}T00:00:00Z`);
  return shardsBetween(from, from + HOURS_PER_DAY * HOUR_MS - 1);
}

/** Shards from one time to another, oldest first. */
export function shardsBetween(from: number, to: number): string[] {
  const shards: string[] = [];
  for (let at = Math.floor(from / HOUR_MS) * HOUR_MS; at <= to; at += HOUR_MS) shards.push(usageShardOf(at));
  return shards;
}
