import * as z from 'zod';
import { SchedulerError } from '../errors.ts';
import type { Model } from './model.ts';

const count = z.number().int().positive().max(10_000_000);

/**
 * The keys of a Hugging Face `config.json` that say a decoder's shape. Families name them differently (OPT: `ffn_dim`, GPT-2: `n_embd`,
 * Mixtral: `num_local_experts`, Qwen3-MoE: `num_experts` and `moe_intermediate_size`, DeepSeek: `n_routed_experts`).
 */
const configSchema = z.object({
  model_type: z.string().optional(),
  _name_or_path: z.string().optional(),
  num_hidden_layers: count.optional(),
  n_layer: count.optional(),
  hidden_size: count.optional(),
  n_embd: count.optional(),
  num_attention_heads: count.optional(),
  n_head: count.optional(),
  num_key_value_heads: count.nullish(),
  multi_query: z.boolean().optional(),
  head_dim: count.nullish(),
  intermediate_size: count.nullish(),
  ffn_dim: count.optional(),
  n_inner: count.nullish(),
  moe_intermediate_size: count.optional(),
  shared_expert_intermediate_size: z.number().int().nonnegative().optional(),
  n_shared_experts: z.number().int().nonnegative().nullish(),
  num_local_experts: count.optional(),
  num_experts: count.optional(),
  n_routed_experts: count.nullish(),
  num_experts_per_tok: count.nullish(),
  vocab_size: count,
  hidden_act: z.string().optional(),
  activation_function: z.string().optional(),
  tie_word_embeddings: z.boolean().optional(),
  max_position_embeddings: count.optional(),
  n_positions: count.optional(),
  kv_lora_rank: count.nullish(),
  text_config: z.unknown().optional(),
});

/** Families whose feed-forward block has no gate. */
const NOT_GATED = new Set(['opt', 'gpt2', 'gpt_neox', 'gpt_bigcode', 'bloom', 'falcon', 'phi', 'starcoder2', 'gptj']);
/** Families that tie the head to the embedding when the file does not say (transformers' default is true). */
const UNTIED_BY_DEFAULT = new Set(['llama', 'mistral', 'mixtral', 'qwen2', 'qwen3', 'qwen2_moe', 'qwen3_moe', 'phi3']);

export function isHuggingFaceConfig(value: unknown): boolean {
  return (
    typeof value === 'object' &&
    value !== null &&
    ('num_hidden_layers' in value || 'n_layer' in value || 'text_config' in value)
  );
}

/** `config` is a parsed config.json; `id` the name the model is served by. */
export function modelFromConfig(config: unknown, id: string): Model {
  const parsed = configSchema.safeParse(config);
  if (!parsed.success)
    throw new SchedulerError('bad_input', `${id}: not a model configuration: ${z.prettifyError(parsed.error)}`);
  const c = parsed.data;
  if (c.text_config !== undefined && c.num_hidden_layers === undefined) return modelFromConfig(c.text_config, id);
  if (c.kv_lora_rank) {
    throw new SchedulerError(
      'bad_input',
      `${id}: latent attention (kv_lora_rank) is not modelled; describe an equivalent by hand in a models file`,
    );
  }
  const need = (name: string, ...values: (number | null | undefined)[]): number => {
    const value = values.find((one) => one !== undefined && one !== null);
    if (value === undefined || value === null)
      throw new SchedulerError('bad_input', `${id}: config.json lacks ${name}`);
    return value;
  };
  const type = c.model_type ?? '';
  const hidden = need('hidden_size', c.hidden_size, c.n_embd);
  const heads = need('num_attention_heads', c.num_attention_heads, c.n_head);
  const experts = c.num_local_experts ?? c.num_experts ?? c.n_routed_experts ?? 1;
  const dense = c.intermediate_size ?? c.ffn_dim ?? c.n_inner ?? (c.n_embd === undefined ? undefined : 4 * c.n_embd);
  const headDim = c.head_dim ?? Math.floor(hidden / heads);
  if (headDim < 1)
    throw new SchedulerError('bad_input', `${id}: a hidden_size of ${hidden} is too little for ${heads} heads`);
  const ffn = need('intermediate_size', experts > 1 ? (c.moe_intermediate_size ?? dense) : dense);
  return {
    id,
    layers: need('num_hidden_layers', c.num_hidden_layers, c.n_layer),
    hidden,
    heads,
    kvHeads: c.num_key_value_heads ?? (c.multi_query ? 1 : heads),
    headDim,
    ffn,
    vocab: c.vocab_size,
    gated: !NOT_GATED.has(type),
    tied: c.tie_word_embeddings ?? !UNTIED_BY_DEFAULT.has(type),
    experts,
    expertsPerToken: experts > 1 ? need('num_experts_per_tok', c.num_experts_per_tok) : 1,
    sharedFfn: c.shared_expert_intermediate_size ?? (c.n_shared_experts ? c.n_shared_experts * ffn : 0),
    context: c.max_position_embeddings ?? c.n_positions ?? 0,
    source: 'config.json',
  };
}
