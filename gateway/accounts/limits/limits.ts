/** What a key or a project may use. An absent member is no limit. */
import * as z from 'zod';

const count = z.number().int().min(1).max(1_000_000_000_000).optional();

export const limitsSchema = z.strictObject({
  requests_per_minute: count,
  tokens_per_minute: count,
  concurrent_requests: count,
  /** Prompt and completion, by calendar month, UTC. */
  tokens_per_month: count,
  /** Of one answer: see reasoning.ts. */
  reasoning_tokens_per_request: count,
});

export type Limits = z.infer<typeof limitsSchema>;
