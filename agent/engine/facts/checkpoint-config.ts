/** Facts from a checkpoint's `config.json`. Pure. */
import { z } from 'zod';
import type { Modality } from '../../../shared/lattice/node-record.ts';

/** The fields of a `config.json` that are read. */
type CheckpointConfig = z.infer<typeof configSchema>;

interface ConfigFacts {
  /** Format in which the weights are stored, such as `bfloat16` or `fp8`. Undefined if it is not certain. */
  precision: string | undefined;
  /** False: the weights are stored in 16 or 32 bits, so that a flag of the engine may quantize them. */
  quantized: boolean;
  /** Maximum length of prompt and response together, in tokens. */
  context: number | undefined;
  /** Undefined if the architecture is not known. */
  modalities: { input: Modality[]; output: Modality[] } | undefined;
}

/** Undefined if `value` is not a configuration. */
export function parseConfig(value: unknown): CheckpointConfig | undefined {
  return configSchema.safeParse(value).data;
}

/** @param beside content of modelopt's `hf_quant_config.json`, in which its earlier versions describe the format */
export function configFacts(config: CheckpointConfig, beside?: unknown): ConfigFacts {
  const parts = [config, ...inner(config)];
  const form =
    first(parts, (part) => part.quantization_config) ??
    config.compression_config ??
    config.quantization ??
    besideSchema.safeParse(beside).data?.quantization;
  return {
    precision: form ? formPrecision(form) : first(parts, (part) => part.torch_dtype ?? part.dtype),
    quantized: form !== undefined && form !== null,
    context: first(
      [...inner(config), config],
      (part) => part.max_position_embeddings ?? part.n_positions ?? part.max_seq_len ?? part.seq_length,
    ),
    modalities: modalitiesOf(config, parts),
  };
}

/** The parts that describe the decoder of a model with several kinds of input. */
function inner({ text_config, llm_config, thinker_config }: CheckpointConfig): Part[] {
  return [text_config, llm_config, thinker_config?.text_config, thinker_config].filter((part) => part != null);
}

function first<T>(parts: readonly Part[], read: (part: Part) => T | null | undefined): T | undefined {
  for (const part of parts) {
    const value = read(part);
    if (value !== undefined && value !== null) return value;
  }
  return undefined;
}

function formPrecision(form: Quantization): string | undefined {
  const method = form.quant_method?.toLowerCase() ?? '';
  const algorithm = form.quant_algo?.toLowerCase() ?? '';
  const named = /mxfp4|nvfp4|fp8/.exec(`${algorithm} ${method}`)?.[0];
  if (named !== undefined) return named;
  const groups = Object.values(form.config_groups ?? {}).flatMap(({ weights }) => weights ?? []);
  if (groups.length > 0) {
    const least = groups.reduce((a, b) => (b.num_bits < a.num_bits ? b : a));
    return `${least.type === 'float' ? 'fp' : 'int'}${least.num_bits}`;
  }
  if (method === 'bitsandbytes') return form.load_in_8bit === true ? 'int8' : 'nf4';
  const bits = form.bits ?? form.w_bit ?? (method === 'awq' ? 4 : undefined);
  return bits === undefined ? undefined : `int${bits}`;
}

function modalitiesOf(
  { architectures }: CheckpointConfig,
  parts: readonly Part[],
): { input: Modality[]; output: Modality[] } | undefined {
  const architecture = architectures?.[0];
  if (architecture === undefined) return undefined;
  const has = (read: (part: Part) => unknown) => first(parts, read) !== undefined;
  // Whisper and similar models only hear.
  const hearsOnly = /^(Whisper|MoonshineFor|Speech)/.test(architecture);
  const input: Modality[] = [
    ...(hearsOnly ? [] : (['text'] as const)),
    ...(has((part) => part.vision_config ?? part.mm_vision_tower ?? part.vision_tower) ? (['image'] as const) : []),
    ...(hearsOnly || has((part) => part.audio_config ?? part.audio_processor) ? (['audio'] as const) : []),
    ...(has((part) => part.video_token_id ?? part.video_token_index) ? (['video'] as const) : []),
  ];
  if (/(ForCausalLM|ForConditionalGeneration|LMHeadModel)$/.test(architecture)) return { input, output: ['text'] };
  return /Model$/.test(architecture) ? { input, output: ['embedding'] } : undefined;
}

const bitsSchema = z.number().int().min(1).max(64);

const quantizationSchema = z.object({
  quant_method: z.string().nullish(),
  /** Written by modelopt. */
  quant_algo: z.string().nullish(),
  /** Written by GPTQ and AWQ. */
  bits: bitsSchema.nullish(),
  w_bit: bitsSchema.nullish(),
  load_in_8bit: z.boolean().nullish(),
  /** Written by compressed-tensors. */
  config_groups: z
    .record(z.string(), z.object({ weights: z.object({ type: z.string().nullish(), num_bits: bitsSchema }).nullish() }))
    .nullish(),
});
type Quantization = z.infer<typeof quantizationSchema>;

/**
 * The type in which weights without quantization are stored; transformers 5 calls it `dtype`. `float32` is not among
 * them, because engines convert such weights unless a flag forbids it.
 */
const dtypeSchema = z.enum(['bfloat16', 'float16']).nullish().catch(undefined);
/** Contexts reach 10 M tokens. */
const tokensSchema = z.number().int().positive().max(1e9).nullish().catch(undefined);
const anySchema = z.unknown().optional();

const partSchema = z.object({
  dtype: dtypeSchema,
  torch_dtype: dtypeSchema,
  quantization_config: quantizationSchema.nullish(),
  max_position_embeddings: tokensSchema,
  n_positions: tokensSchema,
  max_seq_len: tokensSchema,
  seq_length: tokensSchema,
  vision_config: anySchema,
  mm_vision_tower: anySchema,
  vision_tower: anySchema,
  audio_config: anySchema,
  audio_processor: anySchema,
  video_token_id: anySchema,
  video_token_index: anySchema,
});
type Part = z.infer<typeof partSchema>;

const configSchema = partSchema.extend({
  architectures: z.array(z.string().max(256)).max(16).nullish().catch(undefined),
  text_config: partSchema.nullish(),
  llm_config: partSchema.nullish().catch(undefined),
  /** Qwen's Omni models. */
  thinker_config: partSchema.extend({ text_config: partSchema.nullish() }).nullish().catch(undefined),
  compression_config: quantizationSchema.nullish(),
  quantization: quantizationSchema.nullish(),
});

const besideSchema = z.object({ quantization: quantizationSchema });
