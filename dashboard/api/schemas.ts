/** The parts of the gateway's responses that this page shows. Unknown members are accepted. */
import * as z from 'zod/mini';

export const listOf = <T>(item: z.ZodMiniType<T>) => z.object({ data: z.array(item) });

export const meSchema = z.object({
  id: z.string(),
  role: z.enum(['consumer', 'provider', 'operator']),
  login: z.boolean(),
  /** The name of the user, otherwise of the key. Older gateways do not send it. */
  name: z.optional(z.nullable(z.string())),
  user_id: z.nullable(z.string()),
  project_id: z.nullable(z.string()),
  provider: z.nullable(z.string()),
  /** Older gateways do not send it. */
  banner: z.optional(z.nullable(z.object({ level: z.enum(['info', 'warning']), text: z.string() }))),
  /** True if the gateway keeps conversations of this user. Older gateways do not send it. */
  keeps_conversations: z.optional(z.boolean()),
});
export type Me = z.infer<typeof meSchema>;

const modelSchema = z.object({
  id: z.string(),
  state: z.enum(['ready', 'loading', 'on-disk', 'asleep']),
  parent: z.optional(z.string()),
  context_length: z.optional(z.number()),
  quantization: z.optional(z.string()),
  engine: z.optional(z.string()),
});

export const liveNodeSchema = z.object({
  session: z.string(),
  issuer: z.string(),
  provider: z.string(),
  cluster: z.string(),
  region: z.optional(z.string()),
  state: z.enum(['JOIN', 'SERVING', 'DOWN', 'LEFT']),
  connected: z.boolean(),
  suspected: z.boolean(),
  tier: z.string(),
  /** Older gateways do not send it. */
  labels: z.optional(z.record(z.string(), z.string())),
  models: z.array(modelSchema),
  hardware: z.object({
    gpus: z.array(z.object({ class: z.string(), name: z.string(), vram_mib: z.number() })),
    cpus: z.number(),
    memory_mib: z.number(),
  }),
  job: z.optional(z.object({ id: z.string(), partition: z.optional(z.string()), ends_at: z.optional(z.string()) })),
  agent_version: z.string(),
  joined_at: z.string(),
  leaving: z.optional(z.string()),
  updated_at: z.string(),
});
export type Node = z.infer<typeof liveNodeSchema>;

export const modelLoadSchema = z.object({
  id: z.string(),
  /** Nodes that reported their load in the last 5 s. */
  known: z.number(),
  running: z.number(),
  waiting: z.number(),
  tokens_per_second: z.nullable(z.number()),
});
export type ModelLoad = z.infer<typeof modelLoadSchema>;

export const usageSchema = z.looseObject({
  requests: z.number(),
  failed: z.optional(z.number()),
  prompt_tokens: z.optional(z.number()),
  completion_tokens: z.optional(z.number()),
  mean_first_token_ms: z.optional(z.nullable(z.number())),
  mean_total_ms: z.optional(z.nullable(z.number())),
  gpu_seconds: z.optional(z.number()),
  audio_seconds: z.optional(z.number()),
  images: z.optional(z.number()),
});
export type Usage = z.infer<typeof usageSchema>;
