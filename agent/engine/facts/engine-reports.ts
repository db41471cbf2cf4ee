/**
 * Reads what each kind of engine reports about itself. Pure: the answers are arguments, and hostile input. Only the
 * fields below are read, because SGLang's answer also contains its API key.
 */
import { z } from 'zod';
import type { Modality } from '../../../shared/lattice/node-record.ts';
import { acceptedFacts, type ModelFacts } from './model-facts.ts';

/** A checkpoint as an engine names it. */
interface ReportedCheckpoint {
  /** Directory, GGUF file, or name on the hub. */
  path: string;
  /**
   * True if the engine says that it holds the weights in the precision of the checkpoint. Undefined: it does not say.
   */
  unchanged: boolean | undefined;
}

export interface EngineReport {
  facts: ModelFacts;
  checkpoint?: ReportedCheckpoint;
}

const text = z.string().max(4096).nullish().catch(undefined);
const count = z.number().int().positive().max(1e14).nullish().catch(undefined);
const flag = z.boolean().nullish().catch(undefined);
/** An object without fields if the engine sends anything else. Each field that has another type is absent. */
const parsed = <T extends z.ZodRawShape>(shape: T) => z.object(shape).catch(z.object(shape).parse({}));

const report = (facts: Parameters<typeof acceptedFacts>[0], checkpoint?: ReportedCheckpoint): EngineReport => ({
  facts: acceptedFacts(facts),
  ...(checkpoint === undefined ? {} : { checkpoint }),
});

const versionSchema = parsed({ version: text });

/** The version in an answer such as `{"version": "0.12.3"}`; undefined if there is none. */
export function versionOf(answer: unknown): string | undefined {
  return versionSchema.parse(answer).version ?? undefined;
}

/** @param version answer of vLLM's `/version` @param metrics text of its `/metrics` */
export function vllmReport(version: unknown, metrics: string): EngineReport {
  return report({ engine: 'vllm', engine_version: versionOf(version), kv_tokens: vllmKvTokens(metrics) });
}

/** The labels of this metric describe the KV cache. There is one line for each engine behind the port. */
const CACHE = /^(?:ray_)?vllm[:_]cache_config_info\{(.*)\}[ \t]+\S+/gm;
const LABEL = /(\w+)="([^"\\]*)"/g;

function vllmKvTokens(metrics: string): number | undefined {
  let total = 0;
  for (const [, written = ''] of metrics.matchAll(CACHE)) {
    const labels = new Map([...written.matchAll(LABEL)].map(([, name = '', value = '']) => [name, value]));
    const number = (name: string) => (/^\d{1,12}$/.test(labels.get(name) ?? '') ? Number(labels.get(name)) : 0);
    // Older versions have only the number of blocks.
    total += number('kv_cache_size_tokens') || number('num_gpu_blocks') * number('block_size');
  }
  return total > 0 ? total : undefined;
}

const sglangServerSchema = parsed({
  version: text,
  model_path: text,
  revision: text,
  quantization: text,
  dtype: text,
  context_length: count,
  tool_call_parser: text,
  reasoning_parser: text,
  max_running_requests: count,
  max_total_num_tokens: count,
  dp_size: count,
  json_model_override_args: text,
  torchao_config: text,
  modelopt_quant: text,
  internal_states: z
    .array(parsed({ effective_max_running_requests_per_dp: count }))
    .max(1024)
    .nullish()
    .catch(undefined),
});
const sglangModelSchema = parsed({
  model_path: text,
  is_generation: flag,
  has_image_understanding: flag,
  has_audio_understanding: flag,
});

/** @param server answer of SGLang's `/server_info` @param model answer of its `/model_info` */
export function sglangReport(server: unknown, model: unknown): EngineReport {
  const said = sglangServerSchema.parse(server);
  const about = sglangModelSchema.parse(model);
  const copies = said.dp_size ?? 1;
  const each = said.internal_states?.[0]?.effective_max_running_requests_per_dp;
  const path = said.model_path ?? about.model_path;
  const overrides = said.json_model_override_args ?? '{}';
  const changed = [
    said.quantization,
    said.torchao_config,
    said.modelopt_quant,
    overrides === '{}' ? '' : overrides,
  ].some(Boolean);
  return report(
    {
      engine: 'sglang',
      engine_version: said.version,
      revision: said.revision,
      quantization: said.quantization,
      context_length: said.context_length,
      tool_parser: said.tool_call_parser,
      reasoning_parser: said.reasoning_parser,
      max_batch: said.max_running_requests ?? (each && each * copies),
      kv_tokens: said.max_total_num_tokens && said.max_total_num_tokens * copies,
      ...(about.has_image_understanding == null
        ? {}
        : {
            input_modalities: inputs({ image: about.has_image_understanding, audio: about.has_audio_understanding }),
          }),
      ...(about.is_generation == null ? {} : { output_modalities: [about.is_generation ? 'text' : 'embedding'] }),
    },
    // Without an answer of /server_info, flags that change the precision are not known.
    path == null ? undefined : { path, unchanged: said.version == null ? undefined : !changed },
  );
}

const propsSchema = parsed({
  model_path: text,
  build_info: text,
  total_slots: count,
  modalities: parsed({ vision: flag, audio: flag, video: flag }).nullish(),
  chat_template_caps: parsed({ supports_tools: flag, supports_tool_calls: flag }).nullish(),
  default_generation_settings: parsed({ n_ctx: count, params: parsed({ reasoning_format: text }).nullish() }).nullish(),
});
const metaSchema = parsed({ n_params: count });

/** @param props answer of llama.cpp's `/props` @param meta field of the model in its `/v1/models` */
export function llamacppReport(props: unknown, meta: unknown): EngineReport {
  const said = propsSchema.parse(props);
  const { modalities, chat_template_caps: template, default_generation_settings: settings, model_path: path } = said;
  const reasoning = settings?.params?.reasoning_format;
  return report(
    {
      engine: 'llama.cpp',
      engine_version: said.build_info,
      context_length: settings?.n_ctx,
      max_batch: said.total_slots,
      parameters: metaSchema.parse(meta).n_params,
      ...(modalities == null
        ? {}
        : {
            input_modalities: inputs({ image: modalities.vision, audio: modalities.audio, video: modalities.video }),
          }),
      tool_parser: template?.supports_tools === true && template.supports_tool_calls !== false ? 'builtin' : undefined,
      reasoning_parser: reasoning === 'none' ? undefined : reasoning,
    },
    path == null ? undefined : { path, unchanged: true },
  );
}

const showSchema = parsed({
  /** Lines such as `num_ctx 8192`. */
  parameters: text,
  details: parsed({ quantization_level: text }).nullish(),
  model_info: z.record(z.string(), z.unknown()).nullish().catch(undefined),
  capabilities: z.array(z.string()).max(64).nullish().catch(undefined),
  parser: text,
});
const processesSchema = parsed({
  models: z
    .array(parsed({ name: text, context_length: count }))
    .max(256)
    .nullish()
    .catch(undefined),
});

/**
 * Ollama cuts prompts to the context with which it has loaded the model, which may be far shorter than the model's. So
 * the model's own context is not reported.
 * @param show answer of Ollama's `/api/show` for the model `id` @param processes answer of its `/api/ps`
 */
export function ollamaReport(id: string, show: unknown, processes: unknown, version: unknown): EngineReport {
  const { details, model_info: info, capabilities, parser, parameters } = showSchema.parse(show);
  const loaded = processesSchema.parse(processes).models?.find(({ name }) => name === id || name === `${id}:latest`);
  const set = /^num_ctx\s+(\d{1,9})\s*$/m.exec(parameters ?? '')?.[1];
  const level = details?.quantization_level;
  const can = (what: string) => capabilities?.includes(what) === true;
  return report({
    engine: 'ollama',
    engine_version: versionOf(version),
    quantization: level === 'unknown' ? undefined : level,
    context_length: loaded?.context_length ?? (set === undefined ? undefined : Number(set)),
    parameters: info?.['general.parameter_count'],
    ...(capabilities == null
      ? {}
      : {
          input_modalities: inputs({ image: can('vision'), audio: can('audio') }),
          output_modalities: [can('embedding') ? 'embedding' : 'text'],
          tool_parser: can('tools') ? parser || 'builtin' : undefined,
          reasoning_parser: can('thinking') ? parser || 'builtin' : undefined,
        }),
  });
}

const infoSchema = parsed({
  model_id: text,
  model_sha: text,
  version: text,
  max_total_tokens: count,
  max_concurrent_requests: count,
});

/** Undefined if the answer of `/info` is not that of TGI. */
export function tgiReport(info: unknown): EngineReport | undefined {
  const said = infoSchema.parse(info);
  if (said.model_id == null || said.max_total_tokens == null) return undefined;
  return report(
    {
      engine: 'tgi',
      engine_version: said.version,
      revision: said.model_sha,
      context_length: said.max_total_tokens,
      max_batch: said.max_concurrent_requests,
    },
    // A flag may quantize the weights, and /info does not report it.
    { path: said.model_id, unchanged: undefined },
  );
}

/** Report of an engine that tells only its version. */
export function versionReport(engine: string, version: unknown): EngineReport {
  return report({ engine, engine_version: versionOf(version) });
}

type Claim = boolean | null | undefined;

function inputs(can: { image: Claim; audio: Claim; video?: Claim }): Modality[] {
  return ['text', ...(['image', 'audio', 'video'] as const).filter((kind) => can[kind] === true)];
}
