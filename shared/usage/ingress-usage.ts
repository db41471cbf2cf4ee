/** Usage of an agent's ingress, on its way to a gateway: JSON in USAGE frames. */
import * as z from 'zod';
import { sessionSchema } from '../lattice/node-record.ts';
import { PROVIDER_ID_PATTERN } from '../routing/trusted-providers.ts';

const count = z.number().int().nonnegative();

/** More tokens than any attempt can have, so that sums of many stay exact whatever a node reports. */
export const TOKENS_MAX = 1_000_000_000;
const tokens = count.max(TOKENS_MAX);

/** One attempt. Its name (request, attempt) is random, and storing it twice has no effect. */
export const ingressUsageSchema = z.object({
  request_id: z.string().min(1).max(128),
  attempt: count,
  model: z.string().max(1024),
  /** The serving node and its provider. The gateway cannot check either, so no row contains them. */
  session: sessionSchema,
  provider: z.string().regex(PROVIDER_ID_PATTERN).optional(),
  prompt_tokens: tokens,
  completion_tokens: tokens,
  cached_tokens: tokens,
  reasoning_tokens: tokens,
  /** Counted from events or bytes, because the engine gave no numbers. */
  estimated: z.boolean(),
  complete: z.boolean(),
  /** The client left before the end. */
  aborted: z.boolean(),
  answer_bytes: count,
  /** What was requested, and the timings; absent if only a late report described the attempt. */
  course: z
    .object({
      /** Row of shared/openai/endpoints. */
      endpoint: count,
      streamed: z.boolean(),
      /** The engine's status; 0 without a head. */
      status: z.number().int().min(0).max(599),
      /** Milliseconds since the opening; 0 without data. */
      first_ms: count,
      total_ms: count,
    })
    .optional(),
  /** Milliseconds since the epoch, by the ingress's clock. */
  at: count,
});

export type IngressUsage = z.infer<typeof ingressUsageSchema>;

/**
 * How old a record may be when a gateway accepts it. Agents keep records in a file while no gateway is reachable. A
 * week is the lifetime of a session's ticket.
 */
export const INGRESS_USAGE_AGE_MAX_MS = 7 * 24 * 60 * 60_000;

/**
 * How far a node's clock may be ahead of the gateway's. A record within this limit is dated now; a later one is
 * refused.
 */
export const CLOCK_AHEAD_MAX_MS = 5 * 60_000;

/** Records in one frame. */
export const USAGE_BATCH_MAX = 16;

const batchSchema = z.array(z.unknown()).min(1).max(USAGE_BATCH_MAX);

/**
 * The readable records of a batch. An unreadable one (for example of a newer agent) must not block those behind it
 * forever. Undefined: not a batch.
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
