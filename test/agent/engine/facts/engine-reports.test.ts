import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  llamacppReport,
  ollamaReport,
  sglangReport,
  tgiReport,
  versionReport,
  vllmReport,
} from '../../../../agent/engine/facts/engine-reports.ts';
import { acceptedFacts } from '../../../../agent/engine/facts/model-facts.ts';
import { modelSchema } from '../../../../shared/lattice/node-record.ts';

const cache = (labels: string) => `# HELP x\nvllm:cache_config_info{${labels}} 1.0\n`;

describe('vLLM', () => {
  it.each([
    ['blocks of older versions', cache('block_size="16",num_gpu_blocks="27283"'), 436_528],
    ['tokens of newer ones', cache('kv_cache_size_tokens="290925",block_size="16",num_gpu_blocks="100"'), 290_925],
    ['several engines', cache('block_size="16",num_gpu_blocks="10"').repeat(2), 320],
    ['Ray’s name', `ray_vllm_cache_config_info{block_size="16",num_gpu_blocks="10"} 1`, 160],
    ['values that are not there yet', cache('block_size="16",num_gpu_blocks="None"'), undefined],
    [
      'hostile values',
      cache('block_size="-1",num_gpu_blocks="1e9",kv_cache_size_tokens="99999999999999999"'),
      undefined,
    ],
    ['no metrics', '', undefined],
  ])('reports the size of its cache: %s', (_what, metrics, tokens) => {
    expect(vllmReport({ version: '0.32.0' }, metrics).facts.kv_tokens).toBe(tokens);
  });

  it('reports its version', () => {
    expect(vllmReport({ version: '0.32.0' }, '').facts).toEqual({ engine: 'vllm', engine_version: '0.32.0' });
    expect(vllmReport('no object', '').facts).toEqual({ engine: 'vllm' });
  });
});

describe('SGLang', () => {
  const server = {
    ...{ model_path: 'org/m', version: '0.5.17', quantization: null, dtype: 'auto', json_model_override_args: '{}' },
    ...{ dp_size: 2, max_total_num_tokens: 1000, max_running_requests: null, api_key: 'sk-secret' },
    ...{ tool_call_parser: 'qwen25', reasoning_parser: 'qwen3', torchao_config: '' },
    internal_states: [{ effective_max_running_requests_per_dp: 128 }],
  };

  it('reports its limits over all copies, its parsers, and that no flag changes the precision', () => {
    expect(sglangReport(server, { is_generation: true, has_image_understanding: true })).toEqual({
      facts: {
        ...{ engine: 'sglang', engine_version: '0.5.17', tool_parser: 'qwen25', reasoning_parser: 'qwen3' },
        ...{ max_batch: 256, kv_tokens: 2000, input_modalities: ['text', 'image'], output_modalities: ['text'] },
      },
      checkpoint: { path: 'org/m', unchanged: true },
    });
  });

  it.each([
    ['quantization', { quantization: 'fp8' }, false],
    ['overrides', { json_model_override_args: '{"num_hidden_layers": 2}' }, false],
    ['torchao', { torchao_config: 'int4wo-128' }, false],
    ['nothing, because /server_info is missing', undefined, undefined],
  ])('says what changes the precision: %s', (_what, change, unchanged) => {
    const said = change === undefined ? undefined : { ...server, ...change };
    expect(sglangReport(said, { model_path: 'org/m' }).checkpoint?.unchanged).toBe(unchanged);
  });

  it('never passes its key on', () => {
    expect(JSON.stringify(sglangReport(server, {}))).not.toContain('secret');
  });
});

describe('llama.cpp', () => {
  it('reports the context of one slot, its slots and its file', () => {
    const props = {
      ...{
        total_slots: 4,
        model_path: '/m/q.gguf',
        build_info: 'b8681-Debian',
        modalities: { vision: true, audio: false },
      },
      default_generation_settings: { n_ctx: 65_536, params: { reasoning_format: 'none' } },
      chat_template_caps: { supports_tools: true, supports_tool_calls: true },
    };
    expect(llamacppReport(props, { n_params: 8_190_735_360 })).toEqual({
      facts: {
        ...{ engine: 'llama.cpp', engine_version: 'b8681-Debian', context_length: 65_536, max_batch: 4 },
        ...{ parameters: 8_190_735_360, input_modalities: ['text', 'image'], tool_parser: 'builtin' },
      },
      checkpoint: { path: '/m/q.gguf', unchanged: true },
    });
  });

  it('reports video, which newer versions read', () => {
    // As build b11434 answers.
    const props = { modalities: { vision: true, video: true, audio: false }, model_ftype: 'F16', media_marker: '<m>' };
    expect(llamacppReport(props, undefined).facts.input_modalities).toEqual(['text', 'image', 'video']);
  });
});

describe('Ollama', () => {
  const show = {
    details: { quantization_level: 'Q4_K_M' },
    model_info: { 'general.parameter_count': 8_030_261_248, 'llama.context_length': 131_072 },
    capabilities: ['completion', 'tools', 'vision', 'thinking'],
    parser: 'qwen3.5',
  };
  const context = (parameters: string, processes: unknown) =>
    ollamaReport('m', { ...show, parameters }, processes, { version: '0.12.3' }).facts.context_length;

  it('reports the context with which it loaded the model, then that of its parameters, and never the model’s own', () => {
    expect(context('num_ctx 8192', { models: [{ name: 'm:latest', context_length: 4096 }] })).toBe(4096);
    expect(context('stop "x"\nnum_ctx                        8192', { models: [] })).toBe(8192);
    expect(context('', { models: [{ name: 'other', context_length: 4096 }] })).toBeUndefined();
  });

  it('reports the format and the capabilities', () => {
    expect(ollamaReport('m', show, {}, { version: '0.12.3' }).facts).toEqual({
      ...{ engine: 'ollama', engine_version: '0.12.3', quantization: 'Q4_K_M', parameters: 8_030_261_248 },
      ...{ input_modalities: ['text', 'image'], output_modalities: ['text'] },
      ...{ tool_parser: 'qwen3.5', reasoning_parser: 'qwen3.5' },
    });
    const embedding = { details: { quantization_level: 'unknown' }, capabilities: ['embedding'] };
    expect(ollamaReport('m', embedding, {}, {}).facts).toEqual({
      ...{ engine: 'ollama', input_modalities: ['text'], output_modalities: ['embedding'] },
    });
  });
});

it('TGI is known by its /info, and no other engine is', () => {
  const info = {
    model_id: 'org/m',
    model_sha: 'abc',
    version: '3.3.6',
    max_total_tokens: 4096,
    max_concurrent_requests: 128,
  };
  expect(tgiReport(info)?.facts).toEqual({
    ...{ engine: 'tgi', engine_version: '3.3.6', revision: 'abc', context_length: 4096, max_batch: 128 },
  });
  for (const other of [undefined, null, [], 'x', { model_id: 'org/m' }, { version: '1' }])
    expect(tgiReport(other)).toBeUndefined();
});

describe('a hostile engine', () => {
  it.each([
    ['an escape sequence', { engine_version: '1\u001b[31m' }],
    ['a line break', { tool_parser: 'a\nb' }],
    ['text beyond ASCII', { quantization: 'ｆｐ８' }],
    ['more text than the registry allows', { quantization: 'x'.repeat(33) }],
    ['a number of another type', { context_length: '4096' }],
    ['a number without end', { kv_tokens: 1e300 }],
    ['half a token', { max_batch: 1.5 }],
    ['less than nothing', { parameters: -1 }],
    ['no kinds of input', { input_modalities: [] }],
    ['an unknown kind of input', { input_modalities: ['text', 'smell'] }],
    ['an object', { engine: {} }],
  ])('publishes no fact that is %s', (_what, facts) => {
    expect(acceptedFacts({ ...facts, revision: 'abc' })).toEqual({ revision: 'abc' });
  });

  it('with answers of any form makes no report that the registry refuses', () => {
    const values = fc.oneof(
      fc.anything({ maxDepth: 2 }),
      fc.constantFrom(1e308, -1, Number.NaN, '9'.repeat(5000), null),
    );
    const names = fc.constantFrom(
      ...['version', 'model_path', 'quantization', 'dp_size', 'max_total_num_tokens', 'internal_states', 'revision'],
      ...['total_slots', 'modalities', 'default_generation_settings', 'chat_template_caps', 'build_info', 'n_params'],
      ...['details', 'model_info', 'capabilities', 'parameters', 'models', 'parser', 'model_id', 'max_total_tokens'],
    );
    const answers = fc.oneof(values, fc.dictionary(names, values));
    fc.assert(
      fc.property(answers, answers, (one, two) => {
        const reports = [
          vllmReport(one, cache(`num_gpu_blocks="${JSON.stringify(two)}",block_size="16"`)),
          sglangReport(one, two),
          llamacppReport(one, two),
        ];
        reports.push(ollamaReport('m', one, two, one), tgiReport(one) ?? { facts: {} }, versionReport('x', one));
        for (const { facts } of reports)
          expect(modelSchema.safeParse({ id: 'm', state: 'ready', ...facts }).success).toBe(true);
      }),
      { numRuns: 150, seed: 5 },
    );
  });
});
