import { SchedulerError } from '../errors.ts';
import type { ConfigReader } from './config-reader.ts';
import type { LayerPart } from './layers.ts';
import { SIXTEEN_BIT, type Storage } from './model.ts';
import type { Precision } from './precision.ts';

/**
 * The parts of a layer that a name in a checkpoint's list of exceptions means. A router (`gate` without a suffix) is
 * small and counts as 16 bits in any case.
 */
const PART_OF: readonly (readonly [RegExp, readonly LayerPart[]])[] = [
  [/self_attn|attention|attn\b|qkv|o_proj|q_proj|mixer|mamba|linear_attn/, ['attention']],
  [/shared_expert/, ['shared_experts']],
  [/mlp\\?\.(\(|gate_proj|up_proj|down_proj|gate_up)|feed_forward\\?\.(?!experts)/, ['dense']],
];

/**
 * Matches a name that contains the number of a layer. Such exceptions count only if they name at least half of the
 * layers.
 */
const LAYER = /layers\\?\.\d+/;

/**
 * Reads how the checkpoint is stored, from `quantization_config` (also inside `text_config`) or from modelopt's
 * `quantization`.
 */
export function storageOf(c: ConfigReader, layers: number): Storage {
  const quantized =
    c.nested('quantization_config') ??
    c.nested('text_config')?.nested('quantization_config') ??
    c.nested('quantization');
  if (quantized === undefined) return SIXTEEN_BIT;
  const mixed = quantized.nested('quantized_layers');
  if (mixed !== undefined) return { ...mixedStorage(mixed), kv: kvOf(quantized) };
  const weights = precisionOf(quantized);
  const kept = keptParts(quantized, layers);
  // gpt-oss' method mxfp4 applies only to experts, regardless of the list of exceptions.
  const expertsOnly = quantized.text('quant_method') === 'mxfp4';
  const partOf = (part: LayerPart) => (kept.has(part) || (expertsOnly && part !== 'experts') ? 'bf16' : weights);
  return { weights, parts: partsBy(partOf), kv: kvOf(quantized) };
}

const partsBy = (precision: (part: LayerPart) => Precision): Storage['parts'] => ({
  attention: precision('attention'),
  dense: precision('dense'),
  experts: precision('experts'),
  shared_experts: precision('shared_experts'),
});

/** modelopt's MIXED_PRECISION names every quantized layer. Each part gets the precision that it has in most layers. */
function mixedStorage(layers: ConfigReader): Omit<Storage, 'kv'> {
  const counts = new Map<LayerPart, Map<Precision, number>>();
  for (const name of layers.names()) {
    const algorithm = layers.nested(name)?.text('quant_algo')?.toLowerCase() ?? '';
    const precision = algorithm.includes('fp4') ? 'nvfp4' : algorithm.includes('fp8') ? 'fp8' : undefined;
    if (precision === undefined) continue;
    const part = partNamed(name);
    const of = counts.get(part) ?? new Map<Precision, number>();
    counts.set(part, of.set(precision, (of.get(precision) ?? 0) + 1));
  }
  const most = (part: LayerPart) => [...(counts.get(part) ?? [])].sort((a, b) => b[1] - a[1])[0]?.[0] ?? 'bf16';
  const parts = partsBy(most);
  return { weights: parts.experts === 'bf16' ? parts.dense : parts.experts, parts };
}

function partNamed(name: string): LayerPart {
  if (/shared_expert/.test(name)) return 'shared_experts';
  if (/experts/.test(name)) return 'experts';
  return /attn|attention|mixer|mamba/.test(name) && !/(up|down)_proj$/.test(name) ? 'attention' : 'dense';
}

function precisionOf(q: ConfigReader): Precision {
  const method = (q.text('quant_method') ?? '').toLowerCase();
  const algorithm = (q.text('quant_algo') ?? '').toLowerCase();
  if (method === 'mxfp4' || algorithm.includes('mxfp4')) return 'mxfp4';
  if (algorithm.includes('nvfp4') || algorithm === 'fp4') return 'nvfp4';
  if (algorithm.includes('fp8') || method === 'fp8' || method === 'fbgemm_fp8') return 'fp8';
  if (method === 'awq' || method === 'gptq' || method === 'auto-round') return bits(q, q.count('bits', 'w_bit') ?? 4);
  if (method === 'bitsandbytes') return q.flag('load_in_8bit') === true ? 'int8' : 'int4';
  const weights = groupWeights(q);
  if (weights !== undefined) return compressed(q, weights);
  throw new SchedulerError(
    'bad_input',
    `${q.id}: the quantization "${method || algorithm || 'without a name'}" in its config.json is unknown; declare the precision of its weights in a models file, or remove quantization_config`,
  );
}

function bits(q: ConfigReader, count: number): Precision {
  if (count === 4) return 'int4';
  if (count === 8) return 'int8';
  throw new SchedulerError('bad_input', `${q.id}: weights of ${count} bits are not supported; 4 and 8 bits are`);
}

/** Description of the weights in the first group of compressed-tensors' format, which modelopt can also write. */
function groupWeights(q: ConfigReader): ConfigReader | undefined {
  const groups = q.nested('config_groups');
  return groups?.nested('group_0')?.nested('weights') ?? groups?.nested('FP8_DYNAMIC')?.nested('weights');
}

function compressed(q: ConfigReader, weights: ConfigReader): Precision {
  const [type, count, group] = [
    weights.text('type') ?? 'int',
    weights.count('num_bits') ?? 0,
    weights.count('group_size'),
  ];
  if (type === 'float' && count === 8) return 'fp8';
  if (type === 'float' && count === 4)
    return (q.text('format') ?? '').startsWith('mxfp4') || group === 32 ? 'mxfp4' : 'nvfp4';
  return bits(q, count);
}

/** Returns the parts that stay in 16 bits. */
function keptParts(q: ConfigReader, layers: number): Set<LayerPart> {
  const names = [
    q.words('modules_to_not_convert'),
    q.words('ignore'),
    q.words('ignored_layers'),
    q.words('exclude_modules'),
  ].flatMap((list) => list ?? []);
  const kept = new Set<LayerPart>();
  for (const [pattern, parts] of PART_OF) {
    const named = names.filter((name) => pattern.test(name) && !/vision|visual|audio|norm/.test(name));
    const everywhere = named.some((name) => !LAYER.test(name));
    const distinct = new Set(named.flatMap((name) => /layers\\?\.(\d+)/.exec(name)?.[1] ?? []));
    if (everywhere || distinct.size >= layers / 2) for (const part of parts) kept.add(part);
  }
  return kept;
}

function kvOf(q: ConfigReader): Precision {
  const scheme = q.nested('kv_cache_scheme');
  const named = (q.text('kv_cache_quant_algo') ?? '').toLowerCase();
  if (named === 'fp8' || (scheme?.count('num_bits') === 8 && scheme.text('type') === 'float')) return 'fp8';
  if (named === 'int8' || scheme?.count('num_bits') === 8) return 'int8';
  return 'bf16';
}
