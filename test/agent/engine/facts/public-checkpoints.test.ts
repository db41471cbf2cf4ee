/** Checkpoints of public models: their config.json, and tensors of the shapes that follow from it. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { checkpointFacts } from '../../../../agent/engine/facts/checkpoint-facts.ts';
import { modelFromConfig } from '../../../../scheduler/catalogue/huggingface-config.ts';
import { layerMatrices } from '../../../../scheduler/catalogue/layers.ts';
import { embeddingParameters, type Model } from '../../../../scheduler/catalogue/model.ts';
import type { Precision } from '../../../../scheduler/catalogue/precision.ts';
import { quantizationBits } from '../../../../shared/routing/requirement-facts.ts';
import { PUBLIC_MODELS } from '../../../scheduler/support/public-models.ts';
import { scratch } from '../../support/harness.ts';
import { safetensors, type Tensors } from './safetensors.ts';

const BITS: Readonly<Record<string, number>> = { bf16: 16, fp8: 8, int8: 8, int4: 4, mxfp4: 4, nvfp4: 4 };

/** How checkpoints store a matrix: weights of less than 8 bits are packed. */
function stored(precision: Precision, copies: number, inner: number, outer: number): Tensors[string] {
  switch (precision) {
    case 'bf16':
      return { dtype: 'BF16', shape: [copies, outer, inner] };
    case 'fp8':
      return { dtype: 'F8_E4M3', shape: [copies, outer, inner] };
    case 'int8':
      return { dtype: 'I8', shape: [copies, outer, inner] };
    case 'int4':
      return { dtype: 'I32', shape: [copies, inner / 8, outer] };
    default:
      return { dtype: 'U8', shape: [copies, outer, inner / 2] };
  }
}

function tensorsOf(model: Model): Tensors {
  const tensors: Tensors = { 'embedding.weight': { dtype: 'BF16', shape: [embeddingParameters(model)] } };
  if (model.extra > 0) tensors['vision.weight'] = { dtype: 'BF16', shape: [model.extra] };
  for (const [at, layer] of model.layers.entries()) {
    for (const { name, part, inner, outer, matrices } of layerMatrices(layer, model.hidden)) {
      const precision = part === 'router' ? 'bf16' : model.storage.parts[part];
      tensors[`${at}.${name}.weight`] = stored(precision, layer.count * matrices, inner, outer);
      tensors[`${at}.${name}.weight_scale`] = { dtype: 'BF16', shape: [layer.count * matrices, outer] };
    }
    for (const [mixer, one] of layer.mixers.entries())
      if (one.kind === 'recurrent') tensors[`${at}.${mixer}.small`] = { dtype: 'F32', shape: [layer.count, one.small] };
  }
  return tensors;
}

it.each(PUBLIC_MODELS)(
  '$id has $parameters_b B parameters in $weights',
  async ({ id, config, parameters_b, weights, context }) => {
    const path = join(scratch(), 'checkpoint');
    mkdirSync(path);
    const model = modelFromConfig(config, id);
    writeFileSync(join(path, 'config.json'), JSON.stringify({ torch_dtype: 'bfloat16', ...config }));
    writeFileSync(join(path, 'model.safetensors'), safetensors(tensorsOf(model)));
    const facts = await checkpointFacts({ path, env: {}, unchanged: true });
    expect(quantizationBits(facts.quantization ?? '')).toBe(BITS[weights]);
    expect(Math.abs((facts.parameters ?? 0) / 1e9 / parameters_b - 1)).toBeLessThan(0.01);
    expect(facts.context_length).toBe(context ?? (model.context || undefined));
  },
);
