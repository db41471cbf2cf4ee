import { bamba, decilm, falconH1, granite4, jamba, nemotronH } from './hybrid-families.ts';
import {
  allExperts,
  alternating,
  deepseek,
  gemma4,
  gptOss,
  llama4,
  type ModelFamily,
  noWindow,
  plainLayers,
  qwenExperts,
  qwenHybrid,
} from './model-families.ts';

const gated = plainLayers(true, false);
const gatedTied = plainLayers(true, true);
const notGated = plainLayers(false, true);
const notGatedUntied = plainLayers(false, false);

/**
 * Architectures by the `model_type` of a `config.json`. An architecture that is absent here is refused by name: a guess
 * about an unknown one once counted a model of 70 B parameters as one of 99 B. Defaults are those of the classes in
 * transformers 5.23.
 */
const FAMILIES: Readonly<Record<string, ModelFamily>> = {
  llama: gated,
  mistral: gated,
  ministral: gated,
  ministral3: gated,
  granite: gated,
  olmo: gated,
  olmo2: gated,
  phi3: gated,
  stablelm: gated,
  internlm2: gated,
  seed_oss: gated,
  mimo: gated,
  glm: gated,
  glm4: gated,
  hunyuan_v1_dense: gatedTied,
  ernie4_5: gatedTied,
  smollm3: gatedTied,
  gemma: gatedTied,
  cohere: gatedTied,
  qwen2: noWindow(true, false),
  qwen3: noWindow(true, false),
  qwen2_vl: noWindow(true, false),
  qwen2_vl_text: noWindow(true, false),
  qwen2_5_vl: noWindow(true, false),
  qwen2_5_vl_text: noWindow(true, false),
  qwen3_vl_text: noWindow(true, true),
  gemma2: alternating(2, true),
  gemma3_text: alternating(6, true),
  cohere2: alternating(4, true),
  olmo3: alternating(4, false),
  exaone4: alternating(4, false),
  gemma4_text: gemma4,
  apertus: notGatedUntied,
  nemotron: notGatedUntied,
  arcee: notGatedUntied,
  gpt_neox: notGatedUntied,
  phi: notGatedUntied,
  gptj: notGatedUntied,
  starcoder2: noWindow(false, true),
  opt: notGated,
  gpt2: notGated,
  gpt_bigcode: notGated,
  bloom: notGated,
  falcon: notGated,
  mpt: notGated,
  mixtral: allExperts(false),
  phimoe: allExperts(false),
  olmoe: allExperts(false),
  granitemoe: allExperts(true),
  granitemoeshared: allExperts(true),
  minimax_m2: allExperts(false),
  gpt_oss: gptOss,
  qwen2_moe: qwenExperts,
  qwen3_moe: qwenExperts,
  qwen3_vl_moe_text: qwenExperts,
  qwen3_next: qwenHybrid(true),
  qwen3_5_text: qwenHybrid(false),
  qwen3_5_moe_text: qwenHybrid(true),
  llama4_text: llama4,
  deepseek_v2: deepseek(true),
  deepseek_v3: deepseek(true),
  kimi_k2: deepseek(true),
  glm4_moe: deepseek(false),
  dots1: deepseek(false),
  nemotron_h: nemotronH,
  jamba,
  granitemoehybrid: granite4,
  bamba,
  falcon_h1: falconH1,
  'nemotron-nas': decilm,
};

export const MODEL_TYPES: readonly string[] = Object.keys(FAMILIES).sort();

export function familyOf(modelType: string): ModelFamily | undefined {
  return Object.hasOwn(FAMILIES, modelType) ? FAMILIES[modelType] : undefined;
}
