/** Usage records of an agent's ingress on their way to a gateway, as JSON in USAGE frames. */
import * as z from 'zod';
import { sessionSchema } from '../lattice/node-record.ts';
import { PROVIDER_ID_PATTERN } from '../routing/trusted-providers.ts';

const count = z.number().int().nonnegative();

/**
 * Maximum number of tokens of an attempt; no attempt has as many. It keeps sums of many records exact, whatever nodes
 * report.
 */
export const TOKENS_MAX = 1_000_000_000;
const tokens = count.max(TOKENS_MAX);

/** Usage of one attempt. Its name (request, attempt) is random, and storing the record twice has no effect. */
export const ingressUsageSchema = z.object({
  request_id: z.string().min(1).max(128),
  attempt: count,
  model: z.string().max(1024),
  /** The serving node and its provider. The gateway can verify neither, so it stores neither in a row. */
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
  /** When the attempt ended, in milliseconds since the epoch, by the ingress's clock. */
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

export function usageName({ request_id, attempt }: Pick<IngressUsage, 'request_id' | 'attempt'>): string {
  return `${request_id}/${attempt}`;
}
