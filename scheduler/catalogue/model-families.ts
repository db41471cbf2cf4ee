import type { ConfigReader } from './config-reader.ts';
import type { FeedForward, Layer, Mixer } from './layers.ts';
import { gatedDelta, groupedAttention, latentAttention } from './mixers.ts';

/** One layer, before equal layers are merged and counted. */
export type SingleLayer = Omit<Layer, 'count'>;

export interface ModelFamily {
  /**
   * Default for `tie_word_embeddings`: true if the family's class in transformers uses the embedding as the output
   * head.
   */
  tied: boolean;
  layer(c: ConfigReader, index: number): SingleLayer;
}

export const DENSE = { experts: 1, active: 1, shared: 0, latent: 0 } as const;

export function dense(c: ConfigReader, gated: boolean, ...names: readonly string[]): FeedForward {
  const width = c.count(...names, 'intermediate_size', 'ffn_dim', 'n_inner', 'ffn_hidden_size');
  return { width: width ?? 4 * c.need('intermediate_size', 'hidden_size', 'n_embd'), gated, ...DENSE };
}

export function experts(c: ConfigReader, width: number, shared: number): FeedForward {
  const count = c.need('num_local_experts', 'num_experts', 'n_routed_experts');
  const active = c.need('num_experts_per_tok', 'num_experts_per_token', 'experts_per_token', 'top_k_experts');
  return { width, gated: true, experts: count, active, shared, latent: 0 };
}

/** Uses `layer_types` if the file has it. Otherwise every `pattern`-th layer has full attention. */
export function isFull(c: ConfigReader, index: number, pattern: number): boolean {
  const type = c.words('layer_types')?.[index];
  if (type !== undefined) return type === 'full_attention' || type === 'attention';
  return (index + 1) % pattern === 0;
}

const windowed = (c: ConfigReader, index: number, pattern: number): Mixer =>
  groupedAttention(c, isFull(c, index, pattern) ? 0 : (c.count('sliding_window') ?? 4096));

/** Plain decoders: one window for all layers, if the file has one and enables it. */
export function plainLayers(gated: boolean, tied: boolean): ModelFamily {
  return {
    tied,
    layer: (c) => {
      const window = c.flag('use_sliding_window') === false ? 0 : (c.count('sliding_window') ?? 0);
      return { mixers: [groupedAttention(c, window)], feedForward: dense(c, gated) };
    },
  };
}

/**
 * Like `plainLayers`, but a window counts only if the file enables it: the files of qwen2 name a window that is off.
 */
export const noWindow = (gated: boolean, tied: boolean): ModelFamily => ({
  tied,
  layer: (c) => {
    const window = c.flag('use_sliding_window') === true ? (c.count('sliding_window') ?? 0) : 0;
    return { mixers: [groupedAttention(c, window)], feedForward: dense(c, gated) };
  },
});

/** Every `pattern`-th layer has full attention; the other layers have a window. */
export const alternating = (pattern: number, tied: boolean): ModelFamily => ({
  tied,
  layer: (c, index) => ({ mixers: [windowed(c, index, pattern)], feedForward: dense(c, true) }),
});

/** All layers have experts of width `intermediate_size`. */
export const allExperts = (tied: boolean): ModelFamily => ({
  tied,
  layer: (c) => ({
    mixers: [groupedAttention(c, c.count('sliding_window') ?? 0)],
    feedForward: experts(c, c.need('intermediate_size'), c.count('shared_intermediate_size') ?? 0),
  }),
});

/** Qwen's rule: a layer is dense if `mlp_only_layers` lists it or `decoder_sparse_step` does not divide its number. */
function qwenFeedForward(c: ConfigReader, index: number): FeedForward {
  const step = Math.max(1, c.count('decoder_sparse_step') ?? 1);
  if ((c.numbers('mlp_only_layers') ?? []).includes(index) || (index + 1) % step !== 0) return dense(c, true);
  return experts(c, c.need('moe_intermediate_size'), c.count('shared_expert_intermediate_size') ?? 0);
}

export const qwenExperts: ModelFamily = {
  tied: false,
  layer: (c, index) => ({ mixers: [groupedAttention(c)], feedForward: qwenFeedForward(c, index) }),
};

/** Qwen3-Next and Qwen3.5: three recurrent layers for each layer of gated attention. */
export const qwenHybrid = (moe: boolean): ModelFamily => ({
  tied: false,
  layer: (c, index) => {
    const full = isFull(c, index, c.count('full_attention_interval') ?? 4);
    const mixer: Mixer = full ? { ...groupedAttention(c), gate: c.flag('attn_output_gate') !== false } : gatedDelta(c);
    return { mixers: [mixer], feedForward: moe ? qwenFeedForward(c, index) : dense(c, true) };
  },
});

/** DeepSeek's rule: the first layers are dense; the other layers have routed and shared experts. */
function deepseekFeedForward(c: ConfigReader, index: number): FeedForward {
  const frequency = Math.max(1, c.count('moe_layer_freq') ?? 1);
  const first = c.count('first_k_dense_replace') ?? 0;
  if (c.count('n_routed_experts', 'num_experts') === undefined || index < first || index % frequency !== 0)
    return dense(c, true);
  const width = c.need('moe_intermediate_size');
  return experts(c, width, (c.count('n_shared_experts', 'num_shared_experts') ?? 0) * width);
}

export const deepseek = (latent: boolean): ModelFamily => ({
  tied: false,
  layer: (c, index) => ({
    mixers: [latent ? latentAttention(c) : groupedAttention(c)],
    feedForward: deepseekFeedForward(c, index),
  }),
});

/**
 * Llama 4: every fourth layer has full attention and the others chunked attention. Every `interleave_moe_layer_step`-th
 * layer has experts.
 */
export const llama4: ModelFamily = {
  tied: false,
  layer: (c, index) => {
    const interval = c.count('no_rope_layer_interval') ?? 4;
    const everything = c.numbers('no_rope_layers')?.[index] === 0 || (index + 1) % interval === 0;
    const chunk = everything ? 0 : (c.count('attention_chunk_size') ?? 8192);
    const step = Math.max(1, c.count('interleave_moe_layer_step') ?? 1);
    const listed = c.numbers('moe_layers');
    const routed = listed === undefined || listed.length === 0 ? (index + 1) % step === 0 : listed.includes(index);
    const width = c.need('intermediate_size');
    return {
      mixers: [groupedAttention(c, chunk)],
      feedForward: routed ? experts(c, width, width) : dense(c, true, 'intermediate_size_mlp'),
    };
  },
};

export const gptOss: ModelFamily = {
  tied: false,
  layer: (c, index) => ({
    mixers: [windowed(c, index, 2)],
    feedForward: experts(c, c.need('intermediate_size'), 0),
  }),
};

/** Gemma 4: layers with full attention have heads of another shape; experts are next to a dense block. */
export const gemma4: ModelFamily = {
  tied: true,
  layer: (c, index) => {
    const sliding = groupedAttention(c, c.count('sliding_window') ?? 1024);
    const full = isFull(c, index, 6);
    const mixer: Mixer = full
      ? {
          ...sliding,
          window: 0,
          headDim: c.count('global_head_dim') ?? sliding.headDim,
          kvHeads: c.count('num_global_key_value_heads') ?? sliding.kvHeads,
          sharedKeyValue: c.flag('attention_k_eq_v') === true,
        }
      : sliding;
    if (c.flag('enable_moe_block') !== true) return { mixers: [mixer], feedForward: dense(c, true) };
    return { mixers: [mixer], feedForward: experts(c, c.need('moe_intermediate_size'), c.need('intermediate_size')) };
  },
};
