import { SchedulerError } from '../errors.ts';
import type { ConfigReader } from './config-reader.ts';
import type { GroupedAttention, LatentAttention, RecurrentMixer } from './layers.ts';

/**
 * Assumed bytes of one value: recurrent states have 32 bits, and the last inputs of the convolution 16. Some engines
 * store both in the precision of the model unless an option says otherwise.
 */
const STATE_BYTES = 4;
const CONVOLUTION_BYTES = 2;

export function groupedAttention(c: ConfigReader, window = 0): GroupedAttention {
  const hidden = c.need('hidden_size', 'n_embd', 'd_model');
  const heads = c.need('num_attention_heads', 'n_head', 'n_heads');
  const headDim = c.count('head_dim', 'attention_head_dim') ?? Math.floor(hidden / heads);
  if (headDim < 1)
    throw new SchedulerError('bad_input', `${c.id}: a hidden_size of ${hidden} is too small for ${heads} heads`);
  const single = c.flag('multi_query') === true && c.flag('new_decoder_architecture') !== true;
  const kvHeads = single ? 1 : (c.count('num_key_value_heads', 'num_kv_heads', 'n_head_kv') ?? heads);
  return { kind: 'grouped', heads, kvHeads: Math.max(1, kvHeads), headDim, window, gate: false, sharedKeyValue: false };
}

/** Latent attention of DeepSeek-V2, DeepSeek-V3 and Kimi K2. */
export function latentAttention(c: ConfigReader): LatentAttention {
  return {
    kind: 'latent',
    heads: c.need('num_attention_heads'),
    queryRank: c.count('q_lora_rank') ?? 0,
    kvRank: c.need('kv_lora_rank'),
    nopeDim: c.need('qk_nope_head_dim'),
    ropeDim: c.need('qk_rope_head_dim'),
    valueDim: c.need('v_head_dim'),
  };
}

interface Mamba2 {
  heads: number;
  headDim: number;
  groups: number;
  state: number;
  kernel: number;
}

/** Mamba-2 (Dao and Gu 2024): one projection produces the gate, x, B, C and a step per head. */
function mamba2({ heads, headDim, groups, state, kernel }: Mamba2): RecurrentMixer {
  const inner = heads * headDim;
  const convolved = inner + 2 * groups * state;
  return {
    kind: 'recurrent',
    inputs: inner + convolved + heads,
    outputs: inner,
    small: convolved * (kernel + 1) + 3 * heads + inner,
    stateBytes: STATE_BYTES * inner * state + CONVOLUTION_BYTES * convolved * (kernel - 1),
  };
}

/** Mamba-2 with the field names of transformers in Granite 4, Bamba and Falcon-H1. */
export function namedMamba2(c: ConfigReader): RecurrentMixer {
  const hidden = c.need('hidden_size');
  const heads = c.count('mamba_n_heads') ?? 128;
  const inner = c.count('mamba_d_ssm') ?? (c.count('mamba_expand') ?? 2) * hidden;
  return mamba2({
    heads,
    headDim:
      c.text('mamba_d_head') === undefined
        ? (c.count('mamba_d_head') ?? Math.floor(inner / heads))
        : Math.floor(inner / heads),
    groups: c.count('mamba_n_groups') ?? 1,
    state: c.count('mamba_d_state') ?? 256,
    kernel: c.count('mamba_d_conv') ?? 4,
  });
}

/** Nemotron-H uses other field names for the same block. */
export function nemotronMamba2(c: ConfigReader): RecurrentMixer {
  return mamba2({
    heads: c.need('mamba_num_heads'),
    headDim: c.need('mamba_head_dim'),
    groups: c.count('n_groups') ?? 8,
    state: c.need('ssm_state_size'),
    kernel: c.count('conv_kernel') ?? 4,
  });
}

/** Mamba (Gu and Dao 2023), as in Jamba: x_proj and dt_proj are small products of the inner width. */
export function mamba1(c: ConfigReader): RecurrentMixer {
  const hidden = c.need('hidden_size');
  const inner = (c.count('mamba_expand') ?? 2) * hidden;
  const state = c.count('mamba_d_state') ?? 16;
  const kernel = c.count('mamba_d_conv') ?? 4;
  const rank =
    c.text('mamba_dt_rank') === undefined
      ? (c.count('mamba_dt_rank') ?? Math.ceil(hidden / 16))
      : Math.ceil(hidden / 16);
  return {
    kind: 'recurrent',
    inputs: 2 * inner,
    outputs: inner,
    small: inner * (rank + 2 * state) + rank * inner + inner * (state + kernel + 3),
    stateBytes: STATE_BYTES * inner * state + CONVOLUTION_BYTES * inner * (kernel - 1),
  };
}

/** Gated delta rule (Yang et al. 2025), as in Qwen3-Next and Qwen3.5. */
export function gatedDelta(c: ConfigReader): RecurrentMixer {
  const [keyHeads, valueHeads] = [c.need('linear_num_key_heads'), c.need('linear_num_value_heads')];
  const [keyDim, valueDim] = [c.need('linear_key_head_dim'), c.need('linear_value_head_dim')];
  const kernel = c.count('linear_conv_kernel_dim') ?? 4;
  const [keys, values] = [keyHeads * keyDim, valueHeads * valueDim];
  const convolved = 2 * keys + values;
  return {
    kind: 'recurrent',
    inputs: convolved + values + 2 * valueHeads,
    outputs: values,
    small: convolved * kernel + 2 * valueHeads + valueDim,
    stateBytes: STATE_BYTES * valueHeads * keyDim * valueDim + CONVOLUTION_BYTES * convolved * (kernel - 1),
  };
}
