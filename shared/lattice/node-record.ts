/**
 * A node's record about itself. There is one record per session, and only its owner writes it. Liveness and load are
 * not part of it, because they change too often to be replicated.
 */
// Not `{ z }`: that object contains all of zod, and bundlers would keep its 40 languages.
import * as z from 'zod';

/**
 * States of a session (paper §3.3). A session's state only moves to the right. If a node returns, it has a new session.
 */
export const SESSION_STATES = ['JOIN', 'SERVING', 'DOWN', 'LEFT'] as const;
export type SessionState = (typeof SESSION_STATES)[number];

/** Position of a state in JOIN ≺ SERVING ≺ DOWN ≺ LEFT. */
export function sessionStateRank(state: SessionState): number {
  return SESSION_STATES.indexOf(state);
}

/** Pattern of provider, cluster, region and tier names. */
export const ID_PATTERN = /^[a-z0-9][a-z0-9-]{0,62}$/;
export const idSchema = z.string().regex(ID_PATTERN);

/** Session ids are lower-case base32 of a hash of the session's public key; see `sessionIdFromDigest`. */
export const SESSION_PATTERN = /^[a-z2-7]{26}$/;
export const sessionSchema = z.string().regex(SESSION_PATTERN);

const text = (max: number) => z.string().max(max);

/** A fact that newer agents publish. If this version cannot decode the value, the node is still listed without it. */
const fact = <T extends z.ZodType>(schema: T) => schema.optional().catch(undefined);
const amount = z.number().int().positive();

/** Kinds of content that a model reads or writes. */
export const MODALITIES = ['text', 'image', 'audio', 'video', 'embedding'] as const;
export type Modality = (typeof MODALITIES)[number];
const modalities = fact(z.array(z.enum(MODALITIES)).max(MODALITIES.length));

/** Maximum length of the reason why a model was not loaded or unloaded. */
export const MODEL_REASON_MAX = 128;

export const modelSchema = z.object({
  id: text(256).min(1),
  /**
   * `asleep`: the engine has freed its GPUs' memory. `on-disk`: an adapter that the engine has not loaded. A request
   * wakes the engine, or loads the adapter.
   */
  state: z.enum(['ready', 'loading', 'on-disk', 'asleep']),
  /** For a LoRA adapter: the model that it changes. */
  parent: text(256).min(1).optional(),
  /** Milliseconds that the model last needed to become ready. Absent: not measured yet. */
  load_ms: z.number().int().nonnegative().optional(),
  /** Why the last order to load or unload the model failed. */
  reason: text(MODEL_REASON_MAX).optional(),
  /** Maximum number of tokens of prompt and response together. */
  context_length: z.number().int().positive().optional(),
  /** Format of the weights in the engine's memory, also of weights that are not quantized: `bfloat16`, `Q4_K_M`. */
  quantization: text(32).optional(),
  engine: text(64).optional(),
  revision: text(64).optional(),
  engine_version: fact(text(64)),
  parameters: fact(amount),
  input_modalities: modalities,
  output_modalities: modalities,
  /** Name of the engine's parser for tool calls; `builtin` if the engine has only one. Absent: none, or not known. */
  tool_parser: fact(text(64)),
  /** Name of the engine's parser for reasoning; `builtin` if the engine has only one. Absent: none, or not known. */
  reasoning_parser: fact(text(64)),
  /** Maximum number of requests that the engine runs at the same time. */
  max_batch: fact(amount),
  /** Tokens that fit into the engine's KV cache, all requests together. */
  kv_tokens: fact(amount),
});

export const gpuSchema = z.object({
  /** GPU class of shared/hardware, for example `GH200`. */
  class: text(32),
  /** The name that the driver reports. */
  name: text(128),
  vram_mib: z.number().int().nonnegative(),
});

/**
 * Measured state of the machine's GPUs, rounded, so that it seldom changes. Means over the GPUs, and the temperature of
 * the hottest one. A fact that the driver does not report is absent.
 */
const gpuStateSchema = z.object({
  /** Share of time in which a GPU ran a kernel, from 0 to 1. */
  use: fact(z.number().min(0).max(1)),
  memory_used_mib: fact(z.number().min(0).max(1e9)),
  power_w: fact(z.number().min(0).max(100_000)),
  temperature_c: fact(z.number().min(0).max(1_000)),
});
export type GpuState = z.infer<typeof gpuStateSchema>;

/**
 * Maximum number of GPUs of one node: enough for an engine on 32 machines with 8 GPUs each. A bound is needed because
 * shares, budgets and plans rely on what a provider claims.
 */
export const GPUS_MAX = 256;

export const nodeRecordSchema = z.object({
  state: z.enum(SESSION_STATES),
  /** Grows with each change that the owner makes within one state. */
  version: z.number().int().nonnegative(),
  region: text(63).optional(),
  tier: z.enum(['stable', 'volatile']),
  labels: z.record(text(63), text(255)).refine((labels) => Object.keys(labels).length <= 32, 'at most 32 labels'),
  models: z.array(modelSchema).max(64),
  hardware: z.object({
    gpus: z.array(gpuSchema).max(GPUS_MAX),
    cpus: z.number().int().nonnegative(),
    memory_mib: z.number().int().nonnegative(),
  }),
  job: z
    .object({
      id: text(64),
      node: text(255).optional(),
      partition: text(64).optional(),
      /** The job's end as RFC 3339 in UTC. */
      ends_at: z.iso.datetime().optional(),
    })
    .optional(),
  agent_version: text(32),
  gpu_state: fact(gpuStateSchema),
  /** Why the node accepts no new requests and is about to leave: `drain`, `time-limit`, a signal's name, … */
  leaving: text(64).optional(),
});

export type ServedModel = z.infer<typeof modelSchema>;
export type Gpu = z.infer<typeof gpuSchema>;
/** The owner's part of a registry entry. */
export type NodeRecord = z.infer<typeof nodeRecordSchema>;

/**
 * A node's encryption key in base64url, and its provider's statement about this key; see docs/design/sealed-wire.md.
 */
interface NodeSealing {
  v: 1;
  key: string;
  kid: string;
  /** End of the key's validity, in seconds since 1970. */
  until: number;
  vouch?: string | undefined;
  /** Kinds of evidence about its machine that the node can provide. */
  evidence?: string[] | undefined;
}

/**
 * A registry entry as a gateway knows it: the owner's record, and facts that the gateway learned from admission and
 * from the tunnel.
 */
export interface RegistryEntry extends NodeRecord {
  session: string;
  issuer: string;
  provider: string;
  cluster: string;
  /** True if the node's tunnel to this gateway is open. */
  connected: boolean;
  /**
   * True if requests are not routed to the node although its record says SERVING: its tunnel is gone, or it did not
   * answer.
   */
  suspected: boolean;
  /** The key to which clients seal requests to this node. Absent if the node opens no sealed requests. */
  seal?: NodeSealing;
  /**
   * Models with weights on the node, and the stored share in percent. Shown to operators and to the node's
   * provider.
   */
  weights?: { name: string; percent: number }[];
  /** RFC 3339 in UTC. */
  joined_at: string;
  /** When the node's engine first answered. Absent if this gateway did not observe that. */
  serving_since?: string;
  updated_at: string;
}
