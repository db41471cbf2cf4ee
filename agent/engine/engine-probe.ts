/** One probe of an engine's `/v1/models`, or of its health if the user states its models. */
import { Agent } from 'undici';
import { z } from 'zod';
import { modelSchema, type ServedModel } from '../../shared/lattice/node-record.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import { waitClock } from '../wait-clock.ts';
import type { EngineTarget } from './engine-address.ts';
import { askEngine } from './engine-request.ts';
import type { ListedModel } from './facts/fact-reader.ts';

/**
 * Result of one probe. `refused`: nothing listens at the address. `unknown`: the probe showed nothing about the engine.
 * `unnameable`: number of models with ids that the registry refuses.
 */
export type EngineProbeResult =
  | { kind: 'models'; models: ServedModel[]; unnameable: number }
  /** The engine lists these models, but does not answer requests yet. */
  | { kind: 'loading'; models: ServedModel[] }
  | { kind: 'refused'; where?: string }
  | { kind: 'unknown'; reason: string };

/** Bounds of the timeout. During a prefill an engine's HTTP server may not answer for seconds. */
const ANSWER = { leastMs: 5_000, mostMs: 60_000 };

/** Maximum length of a list of models, which normally has a few KiB. */
const ANSWER_MAX_BYTES = 1024 * 1024;

/** Maximum number of models in a registry record. */
const MODELS_MAX = 64;

/** Contexts reach 10 M tokens. */
const tokensSchema = z.number().int().positive().max(1e9).nullish().catch(undefined);
const wordSchema = z.string().max(4096).nullish().catch(undefined);

const modelListSchema = z.object({
  /** Ollama's list is null while Ollama has no model. */
  data: z.preprocess(
    (data) => (data === null ? [] : data),
    z.array(
      z.object({
        id: z.string(),
        /** In vLLM and SGLang: the maximum length of prompt plus response, in tokens. */
        max_model_len: tokensSchema,
        /** In other engines: the same as max_model_len. */
        context_length: tokensSchema,
        owned_by: wordSchema,
        /** In vLLM: the checkpoint's directory, or its name on the hub. */
        root: wordSchema,
        /** In vLLM and SGLang: of a LoRA adapter, the model that it changes. */
        parent: wordSchema,
        /** In llama.cpp: facts about the model, null while it loads. */
        meta: z.unknown().optional(),
      }),
    ),
  ),
});

export class EngineProbe {
  /** True if the engine was ready in an earlier probe. */
  #served = false;
  #listed: readonly ListedModel[] = [];
  readonly #target: EngineTarget;
  /** A connection used only for probes, so that a proxy from the agent's environment is never used for the engine. */
  readonly #agent = new Agent({ connections: 1, pipelining: 1, connectTimeout: ANSWER.mostMs });
  readonly #answers = new AdaptiveTimeout(ANSWER);
  #running: Promise<EngineProbeResult> | undefined;

  constructor(target: EngineTarget) {
    this.#target = target;
  }

  get url(): string {
    const { origin, pathPrefix, models } = this.#target;
    return `${origin}${pathPrefix}${models === undefined ? '/v1/models' : this.#healthPath}`;
  }

  get #healthPath(): string {
    return this.#target.healthPath ?? '/health';
  }

  /** The models of the last list, as the engine described them. */
  get listed(): readonly ListedModel[] {
    return this.#listed;
  }

  /** Probes once, or joins the probe that is running. Never rejects. */
  look(): Promise<EngineProbeResult> {
    this.#running ??= this.#look().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #look(): Promise<EngineProbeResult> {
    try {
      const { models } = this.#target;
      if (models !== undefined) return await this.#lookAtHealth(models);
      const answer = await waitClock.call(this.#answers, (signal) => this.#get('/v1/models', signal));
      if (answer === undefined) return { kind: 'unknown', reason: 'the list of models is longer than 1 MiB' };
      const found = readAnswer(answer.status, answer.text);
      if (found.result.kind !== 'models') return found.result;
      this.#listed = found.listed;
      // A list alone does not mean that the engine is ready: llama.cpp lists models while it loads, SGLang before its
      // first warm-up.
      if (this.#served && !found.withoutFacts) return found.result;
      if (await this.#isLoading()) return { kind: 'loading', models: loading(found.result.models) };
      this.#served = true;
      return found.result;
    } catch (error) {
      return readFailure(error);
    }
  }

  /** An engine without `/v1/models` has its models while it answers. */
  async #lookAtHealth(stated: readonly string[]): Promise<EngineProbeResult> {
    const { status } = (await this.#health()) ?? {};
    if (status === 401 || status === 403) return keyRequired(status);
    this.#listed = stated.map((id) => ({ id, ownedBy: undefined, root: undefined, meta: undefined }));
    const models: ServedModel[] = stated.map((id) => ({ id, state: 'ready' }));
    if (status === 503) return { kind: 'loading', models: loading(models) };
    // An engine without a health page answers 404.
    if (status === 404 || (status !== undefined && status < 300)) return { kind: 'models', models, unnameable: 0 };
    return { kind: 'unknown', reason: `the engine's health page answered ${status ?? 'more than 1 MiB'}` };
  }

  #health(): Promise<{ status: number; text: string } | undefined> {
    return waitClock.call(this.#answers, (signal) => this.#get(this.#healthPath, signal));
  }

  /** True if the engine has a health page and answers it with 503. */
  async #isLoading(): Promise<boolean> {
    try {
      return (await this.#health())?.status === 503;
    } catch {
      return false; // without an answer of /health, the list of models counts
    }
  }

  /** Undefined if the answer is longer than 1 MiB. */
  async #get(path: string, signal: AbortSignal): Promise<{ status: number; text: string } | undefined> {
    const asked = { dispatcher: this.#agent, signal, maxBytes: ANSWER_MAX_BYTES };
    const { status, text } = await askEngine(this.#target, path, asked);
    return text === undefined ? undefined : { status, text };
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

interface ListAnswer {
  result: EngineProbeResult;
  listed: ListedModel[];
  /** True if a model has `meta: null`, so llama.cpp is still loading it. */
  withoutFacts: boolean;
}

const unknown = (reason: string): ListAnswer => ({
  result: { kind: 'unknown', reason },
  listed: [],
  withoutFacts: false,
});

function keyRequired(status: number): EngineProbeResult {
  return { kind: 'unknown', reason: `the engine requires an API key (${status}): give --engine-key-file` };
}

function loading(models: readonly ServedModel[]): ServedModel[] {
  return models.map((model) => ({ ...model, state: 'loading' as const }));
}

function readAnswer(status: number, body: string): ListAnswer {
  if (status === 401 || status === 403) return { ...unknown(''), result: keyRequired(status) };
  if (status !== 200) return unknown(`the engine answered ${status}`);
  const parsed = modelListSchema.safeParse(tryParseJson(body));
  if (!parsed.success) return unknown('the response is not a list of models');
  const { data } = parsed.data;
  // Skip invalid ids: the registry would refuse the whole record because of one.
  const nameable = data.filter(({ id }) => modelSchema.shape.id.safeParse(id).success);
  const models = new Map<string, ServedModel>();
  const listed = new Map<string, ListedModel>();
  for (const { id, max_model_len, context_length, owned_by, root, parent, meta } of nameable.slice(0, MODELS_MAX)) {
    listed.set(id, { id, ownedBy: owned_by ?? undefined, root: root ?? undefined, meta });
    const context = max_model_len ?? context_length;
    models.set(id, {
      id,
      state: 'ready',
      ...(context ? { context_length: context } : {}),
      ...(owned_by === 'vllm' || owned_by === 'sglang' ? { engine: owned_by } : {}),
      ...(parent && modelSchema.shape.parent.safeParse(parent).success ? { parent } : {}),
    });
  }
  const unnameable = data.length - nameable.length;
  const result: EngineProbeResult = { kind: 'models', models: [...models.values()], unnameable };
  return { result, listed: [...listed.values()], withoutFacts: data.some(({ meta }) => meta === null) };
}

function readFailure(error: unknown): EngineProbeResult {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  // Other errors prove nothing: an engine that has just begun to listen, or is about to stop, also resets connections.
  if (code === 'ECONNREFUSED') return { kind: 'refused' };
  return { kind: 'unknown', reason: errorText(error) };
}
