import { SchedulerError } from '../errors.ts';
import { ConfigReader } from './config-reader.ts';
import type { Mixer } from './layers.ts';
import { groupedAttention, mamba1, namedMamba2, nemotronMamba2 } from './mixers.ts';
import { DENSE, dense, experts, isFull, type ModelFamily } from './model-families.ts';

/** Nemotron-H and Nemotron 3. Each layer is one block: Mamba-2 (M), attention (*), a dense block (-) or experts (E). */
export const nemotronH: ModelFamily = {
  tied: false,
  layer: (c, index) => {
    const words: Record<string, string> = {
      mamba: 'M',
      linear_attention: 'M',
      attention: '*',
      full_attention: '*',
      moe: 'E',
      mlp: '-',
    };
    const pattern = c.text('hybrid_override_pattern');
    const types = c.words('layers_block_type') ?? c.words('layer_types');
    const kind = pattern?.[index] ?? words[types?.[index] ?? ''];
    switch (kind) {
      case 'M':
        return { mixers: [nemotronMamba2(c)] };
      case '*':
        return { mixers: [groupedAttention(c)] };
      case '-':
        return { mixers: [], feedForward: dense(c, false) };
      case 'E': {
        const shared = (c.count('n_shared_experts') ?? 1) * (c.count('moe_shared_expert_intermediate_size') ?? 0);
        const routed = experts(c, c.need('moe_intermediate_size'), shared);
        return { mixers: [], feedForward: { ...routed, gated: false, latent: c.count('moe_latent_size') ?? 0 } };
      }
      default:
        throw new SchedulerError(
          'bad_input',
          `${c.id}: layer ${index} of hybrid_override_pattern is ${kind ?? 'missing'}, but must be M, *, - or E`,
        );
    }
  },
};

export const jamba: ModelFamily = {
  tied: false,
  layer: (c, index) => {
    const on = (name: string, period: number, offset: number) =>
      index % Math.max(1, c.count(`${name}_period`) ?? period) === (c.count(`${name}_offset`) ?? offset);
    const routed = (c.count('num_experts') ?? 16) > 1 && on('expert_layer', 2, 1);
    return {
      mixers: [on('attn_layer', 8, 4) ? groupedAttention(c) : mamba1(c)],
      feedForward: routed ? experts(c, c.need('intermediate_size'), 0) : dense(c, true),
    };
  },
};

export const granite4: ModelFamily = {
  tied: false,
  layer: (c, index) => {
    const shared = c.count('shared_intermediate_size') ?? 0;
    const routed = (c.count('num_local_experts') ?? 0) > 0;
    return {
      mixers: [isFull(c, index, Number.POSITIVE_INFINITY) ? groupedAttention(c) : namedMamba2(c)],
      feedForward: routed ? experts(c, c.need('intermediate_size'), shared) : { width: shared, gated: true, ...DENSE },
    };
  },
};

export const bamba: ModelFamily = {
  tied: false,
  layer: (c, index) => ({
    mixers: [(c.numbers('attn_layer_indices') ?? []).includes(index) ? groupedAttention(c) : namedMamba2(c)],
    feedForward: dense(c, true),
  }),
};

/** Falcon-H1: attention and Mamba-2 in parallel in every layer. */
export const falconH1: ModelFamily = {
  tied: false,
  layer: (c) => ({ mixers: [groupedAttention(c), namedMamba2(c)], feedForward: dense(c, true) }),
};

/** Nemotron Super (Puzzle): blocks of different widths, some layers without attention. */
export const decilm: ModelFamily = {
  tied: false,
  layer: (c, index) => {
    const block = c.list('block_configs')?.[index];
    if (block === undefined) return { mixers: [groupedAttention(c)], feedForward: dense(c, true) };
    const reader = new ConfigReader(block, c.id);
    const [attention, ffn] = [reader.nested('attention'), reader.nested('ffn')];
    const heads = c.need('num_attention_heads');
    const group = attention?.count('n_heads_in_group') ?? 1;
    const mixers: Mixer[] =
      attention?.flag('no_op') === true ? [] : [{ ...groupedAttention(c), kvHeads: heads / Math.max(1, group) }];
    if (ffn?.flag('no_op') === true) return { mixers };
    // As in transformers: two thirds of `ffn_mult` times the hidden size, rounded up to a multiple of 256.
    const multiple = ffn?.factor('ffn_mult') ?? 1;
    const width = Math.ceil(Math.floor((2 * multiple * c.need('hidden_size')) / 3) / 256) * 256;
    return { mixers, feedForward: { width, gated: true, ...DENSE } };
  },
};
