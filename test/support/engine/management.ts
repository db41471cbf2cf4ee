/**
 * The mock engine's management calls, with vLLM's and SGLang's paths, bodies and answers: sleep and wake, and LoRA
 * adapters. As with the real engines, they exist only if the engine was started for them. The mock frees no memory, and
 * an adapter is only a name and a folder.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Answer, json, refuse } from './answer.ts';
import type { Behaviour } from './behaviour.ts';

interface ManagementOptions {
  sglang: boolean;
  /** vLLM: development mode with sleep mode. SGLang: the memory saver. */
  sleepMode: boolean;
  /** True: it loads LoRA adapters at run time. */
  lora: boolean;
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
  /** Folders of the loaded LoRA adapters, by name. */
  readonly adapters = new Map<string, string>();
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
    const answered = this.#adapterCall(call) ?? this.#sleepCall(call);
    if (answered === undefined || call.method !== 'POST') return answered?.();
    const { managementMs = 0, management } = call.behaviour;
    if (managementMs > 0) await delay(managementMs);
    if (management === 'hangs') await new Promise(() => {});
    if (management === 'refused') return refuse(500, 'InternalServerError', 'the management call was refused');
    return management === 'ignored' ? DONE : answered();
  }

  #sleepCall(call: Call): (() => Answer) | undefined {
    if (!this.#options.sleepMode) return undefined;
    return this.#options.sglang ? this.#sglang(call) : this.#vllm(call);
  }

  /** vLLM: `entrypoints/openai/models/serving.py`. SGLang: `managers/tokenizer_control_mixin.py`. */
  #adapterCall({ method, path, body }: Call): (() => Answer) | undefined {
    const { lora, sglang } = this.#options;
    const prefix = sglang ? '' : '/v1';
    const what = [`${prefix}/load_lora_adapter`, `${prefix}/unload_lora_adapter`].indexOf(path);
    if (!lora || method !== 'POST' || what === -1) return undefined;
    const name = String(body?.lora_name ?? '');
    const folder = String(body?.lora_path ?? '');
    return () => {
      const trouble = what === 0 ? this.#load(name, folder) : this.#unload(name);
      const done = what === 0 ? 'added' : 'removed';
      if (sglang) {
        const loaded_adapters = Object.fromEntries(this.adapters);
        if (trouble === undefined) return json({ success: true, error_message: null, loaded_adapters });
        return { kind: 'json', status: 400, body: { success: false, error_message: trouble.message, loaded_adapters } };
      }
      if (trouble !== undefined) return refuse(trouble.status, 'InvalidUserInput', trouble.message);
      return { kind: 'json', status: 200, body: `Success: LoRA adapter '${name}' ${done} successfully.` };
    };
  }

  #load(name: string, folder: string): { status: number; message: string } | undefined {
    if (name === '' || folder === '') return { status: 400, message: 'lora_name and lora_path must be provided' };
    if (this.adapters.has(name)) return { status: 400, message: `The lora adapter '${name}' has already been loaded.` };
    if (!existsSync(join(folder, 'adapter_config.json')))
      return { status: 404, message: `Loading lora ${name} failed: No adapter found for ${folder}` };
    this.adapters.set(name, folder);
    return undefined;
  }

  #unload(name: string): { status: number; message: string } | undefined {
    if (this.adapters.delete(name)) return undefined;
    return { status: 404, message: `The lora adapter '${name}' cannot be found.` };
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
