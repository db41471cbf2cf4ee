import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { findGpu, findModel, type HardwareCatalogue, loadCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { withDatasheetMemory } from '../../scheduler/catalogue/datasheet-memory.ts';
import { modelFromConfig } from '../../scheduler/catalogue/huggingface-config.ts';
import { layerCount, parameters } from '../../scheduler/catalogue/model.ts';
import { freeBytes, kvBytesPerToken, weightBytes } from '../../scheduler/roofline/model-deployment.ts';
import { tpProblem } from '../../scheduler/roofline/parallelism.ts';
import { catalogue } from './support/small.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-plan-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const LLAMA_70B = {
  model_type: 'llama',
  hidden_size: 8192,
  intermediate_size: 28672,
  num_attention_heads: 64,
  num_hidden_layers: 80,
  num_key_value_heads: 8,
  vocab_size: 128256,
  max_position_embeddings: 131072,
  tie_word_embeddings: false,
};

describe('models', () => {
  // Sizes of the published checkpoints.
  it.each([
    ['Llama-2-13b-hf', 26.0, 0.819],
    ['CodeLlama-34b-hf', 67.5, 0.197],
    ['Llama-3.3-70B-Instruct', 141.1, 0.328],
    ['Mixtral-8x7B-Instruct-v0.1', 93.4, 0.131],
    ['Qwen3-30B-A3B', 61.0, 0.098],
  ])('%s has %d GB of weights and %d MB of keys and values per token', (name, gb, mb) => {
    const model = findModel(catalogue, name);
    expect(weightBytes({ model, tp: 1, weights: 'bf16' }) / 1e9).toBeCloseTo(gb, 0);
    expect(kvBytesPerToken({ model, tp: 1, kv: 'bf16' }) / 1e6).toBeCloseTo(mb, 2);
  });

  it('a config.json of a grouped-query model gives the shape that the table has', () => {
    const known = findModel(catalogue, 'Llama-3.3-70B-Instruct');
    const read = modelFromConfig(LLAMA_70B, known.id);
    expect({ ...read, source: '' }).toEqual({ ...known, source: '' });
  });

  it('reads experts, their own width and the head size that is not hidden / heads', () => {
    const model = modelFromConfig(
      {
        model_type: 'qwen3_moe',
        hidden_size: 2048,
        intermediate_size: 6144,
        moe_intermediate_size: 768,
        num_experts: 128,
        num_experts_per_tok: 8,
        num_attention_heads: 32,
        num_key_value_heads: 4,
        head_dim: 128,
        num_hidden_layers: 48,
        vocab_size: 151936,
        tie_word_embeddings: false,
      },
      'moe',
    );
    expect(model.layers).toMatchObject([
      { count: 48, mixers: [{ headDim: 128 }], feedForward: { experts: 128, active: 8, width: 768, gated: true } },
    ]);
    expect(parameters(model) / 1e9).toBeCloseTo(30.5, 0);
  });

  it('reads a model without gate whose head is its embedding', () => {
    const opt = {
      model_type: 'opt',
      hidden_size: 7168,
      ffn_dim: 28672,
      num_attention_heads: 56,
      num_hidden_layers: 48,
      vocab_size: 50272,
    };
    const model = modelFromConfig(opt, 'opt-30b');
    expect(model).toMatchObject({ tied: true, layers: [{ mixers: [{ kvHeads: 56 }], feedForward: { gated: false } }] });
    expect(parameters(model) / 1e9).toBeCloseTo(30, 0);
  });

  it.each([
    [{ model_type: 'llama', hidden_size: 4096 }, /num_hidden_layers|vocab_size/],
    [{ ...LLAMA_70B, hidden_size: -1 }, /hidden_size/],
    [{ ...LLAMA_70B, hidden_size: 'big' }, /hidden_size/],
    [{ ...LLAMA_70B, model_type: 'deepseek_v3', kv_lora_rank: 512 }, /lacks qk_nope_head_dim/],
    [{ ...LLAMA_70B, hidden_size: 32 }, /hidden_size of 32 is too small for 64 heads/],
    ['a string', /not a model configuration/],
  ])('refuses a configuration it cannot place: %j', (config, message) => {
    expect(() => modelFromConfig(config, 'x')).toThrow(message);
  });

  it('quantised weights are smaller, embedding and head stay', () => {
    const model = findModel(catalogue, 'Llama-3.3-70B-Instruct');
    const gb = (weights: 'bf16' | 'fp8' | 'int4') => weightBytes({ model, tp: 1, weights }) / 1e9;
    expect(gb('fp8')).toBeCloseTo(gb('bf16') / 2 + 2.1, 0);
    expect(gb('int4')).toBeLessThan(gb('fp8') * 0.6);
  });

  it('key-value heads below one per GPU are copied and cost their memory', () => {
    const model = findModel(catalogue, 'Qwen3-30B-A3B');
    expect(kvBytesPerToken({ model, tp: 8, kv: 'bf16' })).toBe(2 * kvBytesPerToken({ model, tp: 4, kv: 'bf16' }));
  });

  it('says why a parallelism does not divide a model', () => {
    expect(tpProblem(findModel(catalogue, 'llama-30b'), 8)).toMatch(/8 does not divide the 52 attention heads/);
    expect(tpProblem(findModel(catalogue, 'opt-66b'), 3)).toBeUndefined();
    expect(tpProblem(findModel(catalogue, 'opt-66b'), 1.5)).toMatch(/whole number/);
  });
});

describe('the memory of a GPU', () => {
  // MiB, as nvidia-smi and rocm-smi show it.
  it.each([
    ['A100-40-SXM', 40_960],
    ['A100-80-SXM', 81_920],
    ['H100-SXM', 81_559],
    ['GH200-96', 97_871],
    ['H200', 143_771],
    ['V100-32-SXM', 32_768],
    ['RTX-3090', 24_576],
    ['L4', 23_034],
    ['MI300X', 196_592],
  ])('%s is what its driver reports, %i MiB', (id, mib) => {
    expect(Math.abs(findGpu(catalogue, id).memoryBytes / (mib * 2 ** 20) - 1)).toBeLessThan(0.005);
  });

  it('holds a model of 70B parameters in FP8 on one H100, which 80e9 bytes would not', () => {
    const model = findModel(catalogue, 'Llama-3.3-70B-Instruct');
    const on = (gpus: HardwareCatalogue) =>
      freeBytes({ model, gpu: findGpu(gpus, 'H100-SXM'), tp: 1, weights: 'fp8', kv: 'fp8' });
    expect(on(catalogue)).toBeGreaterThan(0);
    expect(on(withDatasheetMemory(catalogue))).toBeLessThan(0);
  });

  it('is what data sheets print for experiments of papers', () => {
    const printed = withDatasheetMemory(catalogue).gpus.map((gpu) => [gpu.id, gpu.memoryBytes / 1e9]);
    expect(printed).toEqual(
      expect.arrayContaining([
        ['A100-80-HGX4', 80],
        ['H100-SXM', 80],
        ['H100-NVL', 94],
        ['GH200-96', 96],
        ['L4', 24],
      ]),
    );
  });
});

describe('names', () => {
  it.each([
    ['gh200-96', 'GH200-96'],
    ['NVIDIA GH200 480GB', 'GH200-96'],
    ['NVIDIA GeForce RTX 3090', 'RTX-3090'],
    ['l4', 'L4'],
    ['A100-80', 'A100-80-SXM'],
    ['NVIDIA A100-SXM4-80GB', 'A100-80-SXM'],
    ['NVIDIA A100-SXM4-40GB', 'A100-40-SXM'],
    ['NVIDIA A100 80GB PCIe', 'A100-80-PCIe'],
    ['nvidia_a100_80gb_pcie', 'A100-80-PCIe'],
    ['NVIDIA H100 80GB HBM3', 'H100-SXM'],
    ['NVIDIA H100 PCIe', 'H100-PCIe'],
    ['NVIDIA H100 NVL', 'H100-NVL'],
    ['NVIDIA GH200 144G HBM3e', 'GH200-144'],
    ['Tesla V100-SXM2-32GB', 'V100-32-SXM'],
    ['v100', 'V100-16-SXM'],
  ])('%s is %s', (name, id) => {
    expect(findGpu(catalogue, name).id).toBe(id);
  });

  it('memory decides between sizes of one class', () => {
    expect(findGpu(catalogue, 'A100', 40_960).id).toBe('A100-40-SXM');
    expect(findGpu(catalogue, 'NVIDIA A100-SXM4-80GB', 81_920).id).toBe('A100-80-SXM');
  });

  it.each([
    ['H100', 9_984],
    ['NVIDIA A100-SXM4-80GB MIG 3g.40gb', 40_960],
    ['a100_3g.20gb', undefined],
    ['1g.10gb', undefined],
  ])('a part of a GPU is none: %s with %s MiB', (name, memoryMib) => {
    expect(() => findGpu(catalogue, name, memoryMib)).toThrow(/there is no GPU/);
  });

  it('unknown names are answered with the nearest', () => {
    expect(() => findGpu(catalogue, 'H300')).toThrow(/nearest: .*H[12]00/);
    expect(() => findModel(catalogue, 'Lama-3.3-70B-Instruct')).toThrow(/nearest: meta-llama\/Llama-3.3-70B-Instruct/);
  });
});

describe('files of a user', () => {
  it("add and replace rows, and a config.json's model is called as its folder or as told", () => {
    const gpus = join(folder, 'gpus.json');
    writeFileSync(
      gpus,
      JSON.stringify({
        gpus: [
          {
            id: 'X1',
            class: 'X1',
            bf16_tflops: 10,
            bandwidth_gbs: 100,
            memory_gb: 8,
            link: 'pcie',
            link_gbs: 32,
            watts: 50,
            usd_hour: 0,
            gpus_per_node: 1,
            source: 'mine',
          },
        ],
      }),
    );
    const config = join(folder, 'config.json');
    writeFileSync(config, JSON.stringify(LLAMA_70B));
    const mine = loadCatalogue({ gpus: [gpus], models: [`our/70b=${config}`] });
    expect(findGpu(mine, 'x1').memoryBytes).toBe(8e9);
    expect(layerCount(findModel(mine, 'our/70b'))).toBe(80);
  });

  it('that are wrong are refused with the place', () => {
    const file = join(folder, 'bad.json');
    writeFileSync(file, JSON.stringify({ gpus: [{ id: 'X', bf16_tflops: 'many' }] }));
    expect(() => loadCatalogue({ gpus: [file] })).toThrow(/bf16_tflops/);
    writeFileSync(file, '{');
    expect(() => loadCatalogue({ gpus: [file] })).toThrow(/not JSON/);
    expect(() => loadCatalogue({ models: ['/nowhere/config.json'] })).toThrow(/cannot read/);
  });
});
