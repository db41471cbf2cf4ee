/** One look at an engine's `/v1/models`. */
import { Agent, request } from 'undici';
import { z } from 'zod';
import { modelSchema, type ServedModel } from '../../shared/lattice/node.ts';
import { jsonOf } from '../../shared/text/json.ts';
import type { EngineTarget } from './address.ts';

/** What one look showed; `unnameable`: models whose ids no registry takes. Only `refused` says that nothing listens; `unknown` is no evidence of anything. */
export type ProbeResult =
  | { kind: 'models'; models: ServedModel[]; unnameable: number }
  | { kind: 'refused'; where?: string }
  | { kind: 'unknown'; reason: string };

/** An engine in prefill can leave its HTTP server waiting for seconds. */
const PROBE_TIMEOUT_MS = 5000;

/** A list of models is a few KiB; an engine that sends more is not one. */
const ANSWER_MAX_BYTES = 1024 * 1024;

/** The registry's bound; more would be refused there. */
const MODELS_MAX = 64;

const modelListSchema = z.object({
  data: z.array(
    z.object({
      id: z.string(),
      /** vLLM and SGLang: the longest prompt plus answer in tokens. */
      max_model_len: z.number().int().positive().nullish().catch(undefined),
      /** Others name it so. */
      context_length: z.number().int().positive().nullish().catch(undefined),
      owned_by: z.string().nullish().catch(undefined),
    }),
  ),
});

export class EngineProbe {
  readonly #target: EngineTarget;
  /** Its own connections: a proxy set for the agent's environment must not stand between it and its engine. */
  readonly #agent = new Agent({ connections: 1, pipelining: 1, connectTimeout: PROBE_TIMEOUT_MS });

  constructor(target: EngineTarget) {
    this.#target = target;
  }

  get url(): string {
    return `${this.#target.origin}${this.#target.pathPrefix}/v1/models`;
  }

  /** Never rejects. */
  async look(): Promise<ProbeResult> {
    try {
      const response = await request(this.url, {
        dispatcher: this.#agent,
        signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
        headers: {
          accept: 'application/json',
          ...(this.#target.key === undefined ? {} : { authorization: `Bearer ${this.#target.key}` }),
        },
      });
      const chunks: Buffer[] = [];
      let bytes = 0;
      for await (const chunk of response.body) {
        bytes += chunk.length;
        if (bytes > ANSWER_MAX_BYTES) return { kind: 'unknown', reason: 'the list of models is longer than 1 MiB' };
        chunks.push(chunk);
      }
      return readAnswer(response.statusCode, Buffer.concat(chunks).toString('utf8'));
    } catch (error) {
      return readFailure(error);
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

function readAnswer(status: number, body: string): ProbeResult {
  if (status === 401 || status === 403) {
    return { kind: 'unknown', reason: `the engine wants its API key (${status}): give --engine-key-file` };
  }
  if (status !== 200) return { kind: 'unknown', reason: `the engine answered ${status}` };
  const parsed = modelListSchema.safeParse(jsonOf(body));
  if (!parsed.success) return { kind: 'unknown', reason: 'the answer is not a list of models' };
  const { data } = parsed.data;
  // One such id must not cost the others: a record with it would be refused whole.
  const nameable = data.filter(({ id }) => modelSchema.shape.id.safeParse(id).success);
  const models = new Map<string, ServedModel>();
  for (const { id, max_model_len, context_length, owned_by } of nameable.slice(0, MODELS_MAX)) {
    const context = max_model_len ?? context_length;
    models.set(id, {
      id,
      state: 'ready',
      ...(context ? { context_length: context } : {}),
      ...(owned_by === 'vllm' || owned_by === 'sglang' ? { engine: owned_by } : {}),
    });
  }
  return { kind: 'models', models: [...models.values()], unnameable: data.length - nameable.length };
}

function readFailure(error: unknown): ProbeResult {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  // A reset connection is also what an engine does that has just begun to listen, or is about to stop.
  if (code === 'ECONNREFUSED') return { kind: 'refused' };
  return { kind: 'unknown', reason: error instanceof Error ? error.message : String(error) };
}
