import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkpointFacts, checkpointOf } from '../../../../agent/engine/facts/checkpoint-facts.ts';
import type { ModelFacts } from '../../../../agent/engine/facts/model-facts.ts';
import { quantizationBits } from '../../../../shared/routing/requirement-facts.ts';
import { scratch } from '../../support/harness.ts';
import { safetensors } from './safetensors.ts';

const BF16 = { torch_dtype: 'bfloat16' };
const FP8 = { torch_dtype: 'bfloat16', quantization_config: { quant_method: 'fp8' } };

function checkpoint(folder: string, files: Record<string, unknown>): string {
  mkdirSync(folder, { recursive: true });
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), JSON.stringify(content));
  return folder;
}

async function factsOf(line: string, env: Record<string, string> = {}, directory?: string): Promise<ModelFacts> {
  const source = checkpointOf(line.split(' '), env, directory, 'org/m');
  return source === undefined ? {} : checkpointFacts(source);
}
const told = async (line: string, env: Record<string, string> = {}) => (await factsOf(line, env)).quantization;
const toldOf = (...configs: [config: unknown, beside?: unknown]) =>
  told(
    `vllm serve ${checkpoint(scratch(), {
      'config.json': configs[0],
      ...(configs.length > 1 && { 'hf_quant_config.json': configs[1] }),
    })}`,
  );

describe('the precision of a checkpoint', () => {
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
    expect(checkpointOf(undefined, {}, undefined, 'org/m')).toBeUndefined();
  });
});

const NAMED = { architectures: ['Qwen3ForCausalLM'], ...BF16, max_position_embeddings: 40_960 };

describe('other facts about a checkpoint', () => {
  it('are its context, its kinds of input, and the number of its parameters over all files', async () => {
    const folder = checkpoint(scratch(), { 'config.json': NAMED });
    writeFileSync(join(folder, 'model-1.safetensors'), safetensors({ a: { dtype: 'BF16', shape: [1000, 30] } }));
    writeFileSync(join(folder, 'model-2.safetensors'), safetensors({ b: { dtype: 'BF16', shape: [70] } }));
    expect(await factsOf(`vllm serve ${folder}`)).toEqual({
      quantization: 'bfloat16',
      context_length: 40_960,
      parameters: 30_070,
      input_modalities: ['text'],
      output_modalities: ['text'],
    });
  });

  it.each([
    [
      'GPTQ of 4 bits',
      { quantization_config: { quant_method: 'gptq', bits: 4 } },
      { dtype: 'I32', shape: [8, 10] },
      640,
    ],
    ['MXFP4', { quantization_config: { quant_method: 'mxfp4' } }, { dtype: 'U8', shape: [4, 16] }, 128],
    ['FP8', FP8, { dtype: 'F8_E4M3', shape: [4, 16] }, 64],
  ])('are the parameters of %s without its scales', async (_what, config, weight, parameters) => {
    const folder = checkpoint(scratch(), { 'config.json': config });
    const scale = { dtype: 'BF16', shape: [4] };
    const tensors = { 'a.weight': weight, 'a.weight_scale_inv': scale, 'a.scales': scale, 'a.qzeros': scale };
    writeFileSync(join(folder, 'model.safetensors'), safetensors(tensors));
    expect(await factsOf(`vllm serve ${folder}`)).toMatchObject({ parameters });
  });

  it.each([
    ['pictures and films', { vision_config: {}, video_token_id: 7 }, ['text', 'image', 'video'], ['text']],
    ['speech only', { architectures: ['WhisperForConditionalGeneration'] }, ['audio'], ['text']],
    [
      'a part for the text',
      { thinker_config: { vision_config: {}, audio_config: {} } },
      ['text', 'image', 'audio'],
      ['text'],
    ],
    ['an encoder', { architectures: ['XLMRobertaModel'] }, ['text'], ['embedding']],
    ['an architecture of another kind', { architectures: ['BertForSequenceClassification'] }, undefined, undefined],
  ])('are the kinds of input and output of %s', async (_what, config, input, output) => {
    const folder = checkpoint(scratch(), { 'config.json': { ...NAMED, ...config } });
    const facts = await factsOf(`vllm serve ${folder}`);
    expect([facts.input_modalities, facts.output_modalities]).toEqual([input, output]);
  });

  it('are not those that a flag may change', async () => {
    const folder = checkpoint(scratch(), { 'config.json': { ...NAMED, vision_config: {} }, 'modules.json': [] });
    expect(await factsOf(`vllm serve ${folder}`)).toMatchObject({ output_modalities: ['embedding'] });
    const facts = await factsOf(`vllm serve ${folder} --language-model-only --runner pooling`);
    expect(facts).toEqual({ quantization: 'bfloat16', context_length: 40_960 });
  });

  it('are read from a folder beside the engine before the hub', async () => {
    const home = scratch();
    checkpoint(join(home, 'org', 'm'), { 'config.json': FP8 });
    expect(await factsOf('vllm serve org/m', { HOME: '/x' }, home)).toMatchObject({ quantization: 'fp8' });
  });

  it('are read without the flags, if the weights are stored quantized, because no flag widens them', async () => {
    const of = (config: unknown) =>
      checkpointFacts({ path: checkpoint(scratch(), { 'config.json': config }), env: {}, unchanged: undefined });
    expect(await of(FP8)).toMatchObject({ quantization: 'fp8' });
    expect(await of(BF16)).toEqual({});
  });
});

describe('a hostile checkpoint', () => {
  it.each([
    ['a pipe', (path: string) => execFileSync('mkfifo', [path])],
    ['a directory', (path: string) => mkdirSync(path)],
    ['5 MiB', (path: string) => writeFileSync(path, `{"a":"${'x'.repeat(5 * 1024 * 1024)}"}`)],
    ['100,000 brackets', (path: string) => writeFileSync(path, '['.repeat(100_000))],
  ])('%s instead of its config.json gives no facts, at once', async (_what, make) => {
    const folder = scratch();
    make(join(folder, 'config.json'));
    expect(await factsOf(`vllm serve ${folder}`)).toEqual({});
  });

  it('with wrong types and huge numbers keeps the other facts', async () => {
    const config = { ...NAMED, max_position_embeddings: 1e300, architectures: 'x', torch_dtype: 'bfloat16\u0000' };
    expect(await toldOf(config)).toBeUndefined();
    const folder = checkpoint(scratch(), { 'config.json': { ...NAMED, max_position_embeddings: -4 } });
    expect(await factsOf(`vllm serve ${folder}`)).toMatchObject({ quantization: 'bfloat16' });
  });

  it.each([
    ['a header longer than the file', Buffer.from('ffffff0000000000', 'hex')],
    ['a header of 2^63 bytes', Buffer.from('ffffffffffffff7f', 'hex')],
    ['an empty file', Buffer.alloc(0)],
    ['a shape that overflows', safetensors({ a: { dtype: 'BF16', shape: Array(8).fill(1e15) } })],
    ['a shape of text', safetensors(JSON.parse('{"a":{"dtype":"BF16","shape":["7"]}}'))],
    ['a list', safetensors(JSON.parse('{"a":[]}'))],
  ])('with %s has no number of parameters', async (_what, bytes) => {
    const folder = checkpoint(scratch(), { 'config.json': NAMED });
    writeFileSync(join(folder, 'model.safetensors'), bytes);
    const facts = await factsOf(`vllm serve ${folder}`);
    expect(facts).toMatchObject({ quantization: 'bfloat16' });
    expect(facts).not.toHaveProperty('parameters');
  });
});
