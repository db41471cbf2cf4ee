/**
 * The mock engine's management calls, with vLLM's and SGLang's paths, bodies and answers: sleep and wake. As with the
 * real engines, they exist only if the engine was started for them. The mock frees no memory.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type Answer, json, refuse } from './answer.ts';
import type { Behaviour } from './behaviour.ts';

interface ManagementOptions {
  sglang: boolean;
  /** vLLM: development mode with sleep mode. SGLang: the memory saver. */
  sleepMode: boolean;
  /** SGLang: keeps weights in the machine's memory while it sleeps. */
  cpuBackup: boolean;
  /** SGLang: the path from which it reads weights again. */
  checkpoint: string;
}

interface Call {
  method: string;
  path: string;
  query: URLSearchParams;
  body: Record<string, unknown> | undefined;
  behaviour: Behaviour;
}

/** vLLM answers 200 without a body, SGLang with `null`. */
const DONE: Answer = { kind: 'json', status: 200, body: '' };
const NULL: Answer = json(null);

export class Management {
  readonly #options: ManagementOptions;
  /** The level at which the engine sleeps; 0: it is awake. */
  level = 0;
  /** Parts of the memory that are free: `weights`, `kv_cache`. */
  readonly #freed = new Set<string>();
  /** True if the weights were dropped and not read again: the engine would answer with noise. */
  #weightsLost = false;

  constructor(options: ManagementOptions) {
    this.#options = options;
  }

  /** Why the engine cannot compute now. */
  get trouble(): string | undefined {
    if (this.level > 0) return 'The model is sleeping.';
    return this.#weightsLost ? 'The weights were not read again after the sleep.' : undefined;
  }

  /** Undefined: the path is not a management call of this engine. */
  async answer(call: Call): Promise<Answer | undefined> {
    if (!this.#options.sleepMode) return undefined;
    const answered = this.#options.sglang ? this.#sglang(call) : this.#vllm(call);
    if (answered === undefined || call.method !== 'POST') return answered?.();
    const { managementMs = 0, management } = call.behaviour;
    if (managementMs > 0) await delay(managementMs);
    if (management === 'hangs') await new Promise(() => {});
    if (management === 'refused') return refuse(500, 'InternalServerError', 'the management call was refused');
    return management === 'ignored' ? DONE : answered();
  }

  #vllm({ method, path, query, body }: Call): (() => Answer) | undefined {
    switch (`${method} ${path}`) {
      case 'GET /is_sleeping':
        return () => json({ is_sleeping: this.level > 0 });
      case 'POST /sleep':
        return () => this.#sleep(Number(query.get('level') ?? '1'));
      case 'POST /wake_up':
        return () => this.#wake(query.getAll('tags'));
      case 'POST /collective_rpc':
        return () => {
          if (body?.method !== 'reload_weights') return refuse(400, 'BadRequestError', 'unknown method');
          this.#weightsLost = false;
          return json({ results: [null] });
        };
      default:
        return undefined;
    }
  }

  #sglang({ method, path, body }: Call): (() => Answer) | undefined {
    const { cpuBackup, checkpoint } = this.#options;
    switch (`${method} ${path}`) {
      case 'POST /release_memory_occupation':
        return () => {
          this.#sleep(cpuBackup ? 1 : 2);
          return NULL;
        };
      case 'POST /resume_memory_occupation':
        return () => {
          this.#wake([]);
          return NULL;
        };
      case 'POST /update_weights_from_disk':
        return () => {
          if (body?.model_path !== checkpoint)
            return { kind: 'json', status: 400, body: { success: false, message: 'no such path' } };
          this.#weightsLost = false;
          return json({ success: true, message: 'Succeeded to update model weights.' });
        };
      default:
        return undefined;
    }
  }

  #sleep(level: number): Answer {
    this.level = level;
    this.#freed.add('weights').add('kv_cache');
    this.#weightsLost = level === 2;
    return DONE;
  }

  #wake(tags: readonly string[]): Answer {
    if (tags.length === 0) this.#freed.clear();
    for (const tag of tags) this.#freed.delete(tag);
    if (this.#freed.size === 0) this.level = 0;
    return DONE;
  }
}
