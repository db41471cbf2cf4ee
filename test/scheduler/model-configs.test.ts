import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { findModel, loadCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { MODEL_TYPES } from '../../scheduler/catalogue/family-by-model-type.ts';
import { modelFromConfig } from '../../scheduler/catalogue/huggingface-config.ts';
import { activeParameters, layerCount, parameters, windowTokens } from '../../scheduler/catalogue/model.ts';
import { SchedulerError } from '../../scheduler/errors.ts';
import { cacheLayout, kvBytesPerToken, sequenceBytes, weightBytes } from '../../scheduler/roofline/model-deployment.ts';
import { layerGemms } from '../../scheduler/roofline/operators.ts';
import { tpProblem } from '../../scheduler/roofline/parallelism.ts';
import { PUBLIC_MODELS, publicConfig, publicModel } from './support/public-models.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-configs-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('public models', () => {
  it('are at least fifty, of every kind that is modelled', () => {
    expect(PUBLIC_MODELS.length).toBeGreaterThanOrEqual(50);
  });

  it.each(PUBLIC_MODELS)('$id has $parameters_b B parameters within 1 %', ({ id, config, parameters_b }) => {
    const found = parameters(modelFromConfig(config, id)) / 1e9;
    expect(Math.abs(found / parameters_b - 1)).toBeLessThan(0.01);
  });

  // Publishers round the active count to one or two digits.
  it.each(PUBLIC_MODELS.filter(({ active_b }) => active_b !== undefined))(
    '$id passes $active_b B of them per token',
    ({ id, config, active_b = 0 }) => {
      const model = modelFromConfig(config, id);
      const found = activeParameters(model) / 1e9;
      // Some include the embedding.
      const either = [found, found + (model.hidden * model.vocab) / 1e9].map((one) => Math.abs(one / active_b - 1));
      expect(Math.min(...either)).toBeLessThan(0.03);
    },
  );

  it.each(PUBLIC_MODELS.filter(({ context }) => context !== undefined))('$id reads $context tokens', (model) => {
    expect(modelFromConfig(model.config, model.id).context).toBe(model.context);
  });

  it.each(PUBLIC_MODELS)(
    '$id is stored in $weights with keys and values in $kv',
    ({ id, config, weights, kv, parts }) => {
      const { storage } = modelFromConfig(config, id);
      expect({ weights: storage.weights, kv: storage.kv }).toEqual({ weights, kv });
      expect(storage.parts).toMatchObject(parts ?? {});
    },
  );
});

describe('memory', () => {
  it('of gpt-oss-120b is that of its MXFP4 experts and 16-bit rest, about 65 GB', () => {
    const model = publicModel('openai/gpt-oss-120b');
    expect(weightBytes({ model, tp: 1, weights: 'mxfp4' }) / 1e9).toBeCloseTo(65, -0.5);
  });

  it('of a latent cache is 70 KB per token and copied to every GPU of a tensor-parallel replica', () => {
    const model = publicModel('deepseek-ai/DeepSeek-V3');
    expect(kvBytesPerToken({ model, tp: 1, kv: 'bf16' })).toBe(61 * (512 + 64) * 2);
    expect(kvBytesPerToken({ model, tp: 8, kv: 'bf16' })).toBe(8 * kvBytesPerToken({ model, tp: 1, kv: 'bf16' }));
    expect(kvBytesPerToken({ model, tp: 1, dp: 8, ep: true, kv: 'bf16' })).toBe(61 * (512 + 64) * 2);
  });

  it('of windowed layers ends at the window', () => {
    const model = publicModel('google/gemma-3-27b-it');
    expect(windowTokens(model)).toBe(1024);
    const layout = cacheLayout({ model, tp: 1, kv: 'bf16' });
    // 10 of 62 layers attend to the whole context.
    expect(layout.perToken / (layout.perToken + layout.perWindowToken)).toBeCloseTo(10 / 62);
    expect(sequenceBytes(layout, 32_768)).toBe(layout.perToken * 32_768 + layout.perWindowToken * 1024);
  });

  it('of a hybrid is little per token and a state per sequence', () => {
    const model = publicModel('nvidia/Nemotron-3-Nano-30B-A3B');
    const layout = cacheLayout({ model, tp: 1, kv: 'bf16' });
    expect(layout.perToken).toBe(6 * 2 * 2 * 128 * 2);
    expect(layout.perSequence / 1e6).toBeCloseTo(48, -1);
  });
});

describe('a router', () => {
  it.each([
    ['a checkpoint in 8 bits', 'deepseek-ai/DeepSeek-V3', 'fp8'],
    ['a checkpoint in 16 bits that is served in 8 bits', 'Qwen/Qwen3-30B-A3B', 'fp8'],
  ] as const)('has 16 bits in %s', (_, id, weights) => {
    const model = publicModel(id);
    const gemms = model.layers.flatMap((layer) => layerGemms(layer, { model, weights, tp: 1 }));
    const precisions = (name: string) => new Set(gemms.filter((one) => one.name === name).map((one) => one.weights));
    expect(precisions('router')).toEqual(new Set(['bf16']));
    expect(precisions('o_proj')).toEqual(new Set(['fp8']));
  });
});

describe('configurations that are not modelled', () => {
  it('are refused by the name of their architecture, with the nearest known ones', () => {
    expect(() =>
      modelFromConfig({ model_type: 'deepseek_v4', num_hidden_layers: 4, hidden_size: 8, vocab_size: 9 }, 'new'),
    ).toThrow(/new: the architecture "deepseek_v4" is not supported; nearest: deepseek_v[23]/);
    expect(() => modelFromConfig({ num_hidden_layers: 4, hidden_size: 8, vocab_size: 9 }, 'nameless')).toThrow(
      /has no model_type/,
    );
    expect(MODEL_TYPES).not.toContain('deepseek_v4');
  });

  it('are refused where the quantisation is unknown', () => {
    const config = { ...publicConfig('Qwen/Qwen3-8B'), quantization_config: { quant_method: 'vptq' } };
    expect(() => modelFromConfig(config, 'odd')).toThrow(/quantization "vptq"/);
  });
});

describe('files as publishers write them', () => {
  it("have Python's Infinity, and modelopt's quantisation beside them", () => {
    const path = join(folder, 'model');
    mkdirSync(path);
    const { quantization, ...config } = publicConfig('nvidia/Qwen3-235B-A22B-NVFP4');
    const text = JSON.stringify({ ...config, note: 'Infinity "NaN"', time_step_limit: [0, 'INF'] }).replace(
      '"INF"',
      'Infinity',
    );
    writeFileSync(join(path, 'config.json'), text);
    writeFileSync(join(path, 'hf_quant_config.json'), JSON.stringify({ producer: {}, quantization }));
    const model = findModel(loadCatalogue({ models: [join(path, 'config.json')] }), 'model');
    expect(layerCount(model)).toBe(94);
    expect(model.storage).toMatchObject({ weights: 'nvfp4', kv: 'fp8' });
  });
});

describe('a configuration with one field that is wrong', () => {
  it('is read to a model of finite size or refused with a reason, never half read', () => {
    const wrong = fc.constantFrom<unknown>(
      0,
      -1,
      1,
      1.5,
      1e9,
      1e308,
      Number.NaN,
      '',
      'auto',
      null,
      [],
      {},
      [1, 'x'],
      true,
    );
    const config = fc.constantFrom(...PUBLIC_MODELS);
    fc.assert(
      fc.property(config, fc.nat(), wrong, (model, at, value) => {
        const inner = model.config.text_config;
        const fields = typeof inner === 'object' && inner !== null ? { ...inner } : { ...model.config };
        const names = Object.keys(fields);
        const name = names[at % names.length] ?? '';
        const changed = { ...fields, [name]: value };
        const broken = inner === undefined ? changed : { ...model.config, text_config: changed };
        let read: ReturnType<typeof modelFromConfig>;
        try {
          read = modelFromConfig(broken, 'broken');
        } catch (error) {
          expect(error).toBeInstanceOf(SchedulerError);
          return;
        }
        expect(parameters(read), `${model.id} ${name}`).toBeGreaterThan(0);
        expect(Number.isFinite(parameters(read)), `${model.id} ${name}`).toBe(true);
        expect(tpProblem(read, 2) ?? '').toEqual(expect.any(String));
      }),
      { numRuns: 3000, seed: 4 },
    );
  });
});
