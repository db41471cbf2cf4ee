/** Who waits for a node, how long, and with what weight: one setting of the gateway. */
import * as z from 'zod';
import { boundedRecord } from '../http/schema-parts.ts';

/** Proxies and people give a silent unary request up after about so long; a stream is pinged meanwhile. */
const UNARY_MS = 60_000;
const STREAM_MS = 600_000;
/** An hour: nobody waits longer, whatever is set. */
const WAIT_MAX_MS = 3_600_000;
const PLACES = 1_000;
const WEIGHTS_MAX = 1_000;

const wait = z.number().int().min(0).max(WAIT_MAX_MS);

export const queueSchema = z.strictObject({
  /** Longest wait for a free node; 0: none, 503 at once. */
  unary_ms: wait.default(UNARY_MS),
  stream_ms: wait.default(STREAM_MS),
  /** Requests that may wait for one model. */
  places: z.number().int().min(1).max(10_000).default(PLACES),
  /** Turns by project id, relative to the 1 of all others. */
  weights: boundedRecord(z.string().max(64), z.number().min(0.01).max(100), WEIGHTS_MAX).default({}),
});

export type QueueSettings = z.infer<typeof queueSchema>;

export const QUEUE_DEFAULTS: QueueSettings = queueSchema.parse({});
