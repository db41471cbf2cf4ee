/**
 * Usage records that an agent makes itself, on their way to a gateway as JSON in USAGE frames: of requests to its ingress,
 * and of requests of peer institutions to its engine.
 */
import * as z from 'zod';
import { sessionSchema } from '../lattice/node-record.ts';
import { INSTITUTION_PATTERN, PROVIDER_ID_PATTERN } from '../routing/trusted-providers.ts';
import { PEER_PROJECT_PATTERN } from './readable-receipt.ts';

const count = z.number().int().nonnegative();

/**
 * Maximum number of tokens of an attempt; no attempt has as many. It keeps sums of many records exact, whatever nodes
 * report.
 */
export const TOKENS_MAX = 1_000_000_000;
const tokens = count.max(TOKENS_MAX);

/** Maximum GPU time of an attempt, in milliseconds of one GPU: 256 GPUs for the lifetime of a ticket. */
export const GPU_MS_MAX = 256 * 7 * 24 * 60 * 60_000;

/** Number of characters of a serving's random name. */
export const SERVING_CHARS = 16;

/** The peer institution that sent the request to this agent's engine. */
const peerSchema = z.object({
  /** Name of the peer institution at this agent's institution. */
  name: z.string().regex(INSTITUTION_PATTERN),
  /** Id of the project at the peer institution, which the gateway cannot verify. */
  project: z.string().regex(PEER_PROJECT_PATTERN).optional(),
  /** Random name of this serving. The peer institution chooses `request_id`, and may use one twice. */
  serving: z.string().regex(/^[A-Za-z0-9_-]{16}$/),
  /** GPU time in milliseconds of one GPU. */
  gpu_ms: count.max(GPU_MS_MAX),
  /** Present if the request must leave no record: this one has counts only, and the hour in place of the time. */
  untracked: z.literal(true).optional(),
});

/** Usage of one attempt. Its name (request, attempt) is random, and storing the record twice has no effect. */
export const ingressUsageSchema = z.object({
  request_id: z.string().min(1).max(128),
  attempt: count,
  model: z.string().max(1024),
  /** The serving node and its provider. The gateway can verify neither, so they are never the row's own. */
  session: sessionSchema,
  provider: z.string().regex(PROVIDER_ID_PATTERN).optional(),
  prompt_tokens: tokens,
  completion_tokens: tokens,
  cached_tokens: tokens,
  reasoning_tokens: tokens,
  /** True if the tokens were counted from events or bytes, because the engine reported no numbers. */
  estimated: z.boolean(),
  complete: z.boolean(),
  /** True if the client disconnected before the end. */
  aborted: z.boolean(),
  answer_bytes: count,
  /** The kind of request and its timings. Absent if the ingress had forgotten the attempt when the report arrived. */
  course: z
    .object({
      /** Index of the endpoint in shared/openai/endpoints. */
      endpoint: count,
      streamed: z.boolean(),
      /** The engine's HTTP status; 0 if there was no response head. */
      status: z.number().int().min(0).max(599),
      /** Milliseconds from the opening to the first data; 0 if there was none. */
      first_ms: count,
      total_ms: count,
    })
    .optional(),
  /** Present if a peer institution sent the request. Absent for requests to this agent's ingress. */
  peer: peerSchema.optional(),
  /** When the attempt ended, in milliseconds since the epoch, by the agent's clock. */
  at: count,
});

export type IngressUsage = z.infer<typeof ingressUsageSchema>;

/**
 * Maximum age of a record that a gateway accepts. While no gateway is reachable, agents keep records in a file. A week
 * is also the lifetime of a session's ticket.
 */
export const INGRESS_USAGE_AGE_MAX_MS = 7 * 24 * 60 * 60_000;

/**
 * Number of milliseconds by which a node's clock may be ahead of the gateway's. Within this limit a record from the
 * future gets the gateway's time; beyond it the record is refused.
 */
export const CLOCK_AHEAD_MAX_MS = 5 * 60_000;

/** Maximum number of records in one frame. */
export const USAGE_BATCH_MAX = 16;

const batchSchema = z.array(z.unknown()).min(1).max(USAGE_BATCH_MAX);

/**
 * Returns the records of a batch that this version can read. Others, for example from a newer agent, are skipped,
 * because otherwise they would block the records after them forever. Undefined if the text is not a batch.
 */
export function parseUsageBatch(json: string): IngressUsage[] | undefined {
  try {
    const items = batchSchema.safeParse(JSON.parse(json)).data;
    return items?.flatMap((item) => ingressUsageSchema.safeParse(item).data ?? []);
  } catch {
    return undefined;
  }
}

/** Returns the name under which a record is stored once. */
export function usageName({
  request_id,
  attempt,
  peer,
}: Pick<IngressUsage, 'request_id' | 'attempt' | 'peer'>): string {
  return peer === undefined ? `${request_id}/${attempt}` : `${request_id}/${attempt}/${peer.serving}`;
}
