import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkpointPrecision } from '../../../agent/engine/checkpoint-precision.ts';
import { quantizationBits } from '../../../shared/routing/requirement-facts.ts';
import { PUBLIC_MODELS } from '../../scheduler/support/public-models.ts';
import { scratch } from '../support/harness.ts';

const BITS: Readonly<Record<string, number>> = { bf16: 16, fp8: 8, int8: 8, int4: 4, mxfp4: 4, nvfp4: 4 };
const BF16 = { torch_dtype: 'bfloat16' };
const FP8 = { torch_dtype: 'bfloat16', quantization_config: { quant_method: 'fp8' } };

function checkpoint(folder: string, files: Record<string, unknown>): string {
  mkdirSync(folder, { recursive: true });
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), JSON.stringify(content));
  return folder;
}

const told = (line: string, env: Record<string, string> = {}) => checkpointPrecision(line.split(' '), env);
const toldOf = (...configs: [config: unknown, beside?: unknown]) =>
  told(
    `vllm serve ${checkpoint(scratch(), {
      'config.json': configs[0],
      ...(configs.length > 1 && { 'hf_quant_config.json': configs[1] }),
    })}`,
  );

describe('the precision of a checkpoint', () => {
  it.each(PUBLIC_MODELS)('is read from the config.json of $id', async ({ config, weights }) => {
    const precision = await toldOf({ torch_dtype: 'bfloat16', ...config });
    expect(quantizationBits(precision ?? '')).toBe(BITS[weights]);
  });

  it.each([
    ['AWQ', { quantization_config: { quant_method: 'awq', w_bit: 4 } }, 4],
    ['GPTQ of 8 bits', { quantization_config: { quant_method: 'gptq', bits: 8 } }, 8],
    ['bitsandbytes', { quantization_config: { quant_method: 'bitsandbytes', load_in_4bit: true } }, 4],
    ['an old name of the field', { compression_config: FP8.quantization_config }, 8],
    ['a part for text', { text_config: { dtype: 'float16' } }, 16],
    ['a form that is not known', { ...BF16, quantization_config: { quant_method: 'next-year' } }, undefined],
    ['mixed precisions', { ...BF16, quantization_config: { quant_algo: 'MIXED_PRECISION' } }, undefined],
    ['32 bits, which engines do not keep', { torch_dtype: 'float32' }, undefined],
    ['no type', {}, undefined],
    ['no object', [], undefined],
  ])('is read from %s', async (_what, config, bits) => {
    const precision = await toldOf(config);
    expect(precision === undefined ? undefined : quantizationBits(precision)).toBe(bits);
  });

  it('is in a second file of modelopt', async () => {
    expect(await toldOf(BF16, { quantization: { quant_algo: 'FP8' } })).toBe('fp8');
  });

  it('is read from the hub’s cache, where the engine’s environment or command places it', async () => {
    const home = scratch();
    const cache = join(home, '.cache', 'huggingface', 'hub');
    checkpoint(join(cache, 'models--org--m', 'snapshots', 'abc'), { 'config.json': BF16 });
    expect(await told('vllm serve org/m --port 1', { HOME: home })).toBe('bfloat16');
    expect(await told('python3 -m sglang.launch_server --model-path org/m', { HOME: home })).toBe('bfloat16');
    expect(await told('vllm serve org/m', { HOME: '/x', XDG_CACHE_HOME: join(home, '.cache') })).toBe('bfloat16');
    expect(await told('vllm serve org/m', { HF_HOME: join(home, '.cache', 'huggingface') })).toBe('bfloat16');
    expect(await told('vllm serve org/m', { HF_HOME: '/x', HF_HUB_CACHE: cache })).toBe('bfloat16');
    expect(await told(`vllm serve org/m --download-dir ${cache}`, { HOME: '/x' })).toBe('bfloat16');
    expect(await told('vllm serve org/m', { HOME: '/x' })).toBeUndefined();
    expect(await told('vllm serve ../org', { HOME: home })).toBeUndefined();
    checkpoint(join(cache, 'models--org--m', 'snapshots', 'def'), { 'config.json': BF16 });
    expect(await told('vllm serve org/m', { HOME: home })).toBe('bfloat16');
    checkpoint(join(cache, 'models--org--m', 'snapshots', 'ghi'), { 'config.json': FP8 });
    expect(await told('vllm serve org/m', { HOME: home })).toBeUndefined(); // any of them may run
  });

  it.each([
    '--quantization fp8',
    '--quantization=fp8',
    '-q fp8',
    '--hf-overrides {}',
    '--config vllm.yaml',
    '--load-format gguf',
    '--hf-config-path other',
    '--modelopt-quant fp8',
    '--torchao-config int4wo-128',
    '$FLAGS',
    '--port $PORT',
  ])('is unknown where the command line may change it: %s', async (flags) => {
    const folder = checkpoint(scratch(), { 'config.json': BF16 });
    expect(await told(`vllm serve ${folder} --dtype half --hf-token x`)).toBe('bfloat16');
    expect(await told(`vllm serve ${folder} ${flags}`)).toBeUndefined();
  });

  it('is unknown for engines whose flags are not known', async () => {
    const folder = checkpoint(scratch(), { 'config.json': BF16 });
    expect(await told(`other serve ${folder}`)).toBeUndefined();
    expect(await checkpointPrecision(undefined, {})).toBeUndefined();
  });
});
