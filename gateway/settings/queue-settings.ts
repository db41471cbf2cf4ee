/**
 * The gateway's setting of how long requests wait for a node, how many may wait, and the weights of projects in the
 * queue.
 */
import * as z from 'zod';
import { boundedRecord } from '../http/common-schemas.ts';

/**
 * Default of `unary_ms`: after about this time without a byte, proxies and users give up a request. A stream gets
 * comments while it waits, so STREAM_MS is longer.
 */
const UNARY_MS = 60_000;
const STREAM_MS = 600_000;
/** Maximum of `unary_ms` and of `stream_ms`: an hour. */
const WAIT_MAX_MS = 3_600_000;
const PLACES = 1_000;
const WEIGHTS_MAX = 1_000;

const wait = z.number().int().min(0).max(WAIT_MAX_MS);

export const queueSchema = z.strictObject({
  /** Maximum wait of a non-streaming request for a free node; 0: no wait, the response is 503 immediately. */
  unary_ms: wait.default(UNARY_MS),
  stream_ms: wait.default(STREAM_MS),
  /** Maximum requests that wait for one model. */
  places: z.number().int().min(1).max(10_000).default(PLACES),
  /** Weights of projects in the queue, by project id. All other projects have 1. */
  weights: boundedRecord(z.string().max(64), z.number().min(0.01).max(100), WEIGHTS_MAX).default({}),
});

export type QueueSettings = z.infer<typeof queueSchema>;

export const QUEUE_DEFAULTS: QueueSettings = queueSchema.parse({});
