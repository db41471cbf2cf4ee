/** What an agent's ingress used without a gateway, on its way to one: JSON in USAGE frames. */
import * as z from 'zod';
import { sessionSchema } from '../lattice/node.ts';
import { PROVIDER_ID_PATTERN } from '../routing/trust.ts';

const count = z.number().int().nonnegative();

/** More tokens than any attempt has: sums of many stay exact, whatever a node says. */
export const TOKENS_MAX = 1_000_000_000;
const tokens = count.max(TOKENS_MAX);

/** One attempt. Its name (request, attempt) is random: storing it twice is storing it once. */
export const ingressUsageSchema = z.object({
  request_id: z.string().min(1).max(128),
  attempt: count,
  model: z.string().max(1024),
  /** The node that served it, and that node's provider. The gateway cannot check either, so no row carries them. */
  session: sessionSchema,
  provider: z.string().regex(PROVIDER_ID_PATTERN).optional(),
  prompt_tokens: tokens,
  completion_tokens: tokens,
  cached_tokens: tokens,
  reasoning_tokens: tokens,
  /** Counted from events or bytes, since the engine gave no numbers. */
  estimated: z.boolean(),
  complete: z.boolean(),
  /** The client left before the end. */
  aborted: z.boolean(),
  answer_bytes: count,
  /** What was asked, and what came when; absent where only a late report told of the attempt. */
  course: z
    .object({
      /** Row of shared/openai/endpoints. */
      endpoint: count,
      streamed: z.boolean(),
      /** The engine's; 0 where no head came. */
      status: z.number().int().min(0).max(599),
      /** Since the opening; 0 where no data came. */
      first_ms: count,
      total_ms: count,
    })
    .optional(),
  /** Milliseconds since the epoch, by the ingress's clock. */
  at: count,
});

export type IngressUsage = z.infer<typeof ingressUsageSchema>;

/**
 * How old a record may be when a gateway takes it. Agents keep records in a file while no gateway can be reached. A week is as long as
 * a session's ticket lasts.
 */
export const INGRESS_USAGE_AGE_MAX_MS = 7 * 24 * 60 * 60_000;

/** How far a node's clock may be ahead of the gateway's. A record within it is dated now; a record beyond it is refused. */
export const CLOCK_AHEAD_MAX_MS = 5 * 60_000;

/** Records in one frame. */
export const USAGE_BATCH_MAX = 16;

const batchSchema = z.array(z.unknown()).min(1).max(USAGE_BATCH_MAX);

/**
 * The records of a batch that can be read: one that cannot (of a newer agent, say) must not hold up those behind it for ever.
 * Undefined for what is no batch.
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
