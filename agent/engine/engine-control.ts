/**
 * The engine's own calls to sleep, to wake, and to load and unload LoRA adapters: those of vLLM (`/sleep`, `/wake_up`,
 * `/is_sleeping` in development mode; `/v1/load_lora_adapter`) and of SGLang (`/release_memory_occupation`,
 * `/resume_memory_occupation`; `/load_lora_adapter`).
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Agent } from 'undici';
import * as z from 'zod';
import { openAiErrorMessage } from '../../shared/openai/error-message.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import type { EngineTarget } from './engine-address.ts';
import { askEngine } from './engine-request.ts';

/** Maximum bytes of an answer. SGLang's /server_info has some tens of KiB. */
const ANSWER_MAX_BYTES = 1024 * 1024;
/** Maximum characters of an engine's answer in an error. */
const SHOWN_MAX = 200;
/** Maximum time for a question, which the engine answers from memory. */
const QUESTION_MS = 10_000;
/** Time in which engines show a new state: vLLM's answer may come before it. */
const SETTLE_MS = 10_000;
const POLL_MS = 100;

/** 1: the weights stay in the machine's memory. 2: they are dropped, and read from disk again. */
export type SleepLevel = 1 | 2;

/** The engine refused, did not answer, or did not do what it confirmed. */
export class EngineControlError extends Error {
  override readonly name = 'EngineControlError';
}

export interface EngineControl {
  /** @throws EngineControlError if the engine cannot sleep at this level */
  checkSleep(level: SleepLevel): Promise<void>;
  /** True if the engine sleeps now; undefined: the engine does not report it. */
  isAsleep(): Promise<boolean | undefined>;
  /** Call only if no request runs. Resolves when the memory is free. @throws EngineControlError */
  sleep(level: SleepLevel, signal: AbortSignal): Promise<void>;
  /** @param level undefined: unknown, so the weights are read again @throws EngineControlError */
  wake(level: SleepLevel | undefined, signal: AbortSignal): Promise<void>;
  /** Resolves when the engine lists the adapter. @throws EngineControlError */
  loadAdapter(adapter: { name: string; path: string }, signal: AbortSignal): Promise<void>;
  /** Resolves when the engine does not list the adapter any more. @throws EngineControlError */
  unloadAdapter(name: string, signal: AbortSignal): Promise<void>;
}

/** @param settleMs time after a call in which the engine must show its new state */
export function engineControl(target: EngineTarget, settleMs = SETTLE_MS): EngineControl {
  return target.engine === 'sglang'
    ? { ...sglangSleep(target), ...adapterCalls(target, '', settleMs) }
    : { ...vllmSleep(target, settleMs), ...adapterCalls(target, '/v1', settleMs) };
}

const listSchema = z.object({ data: z.array(z.object({ id: z.string() })) });

/** Both engines have the same calls at different paths. The list of models shows the result. */
function adapterCalls(
  target: EngineTarget,
  prefix: string,
  settleMs: number,
): Pick<EngineControl, 'loadAdapter' | 'unloadAdapter'> {
  const change = async (
    what: 'load' | 'unload',
    body: { lora_name: string; lora_path?: string },
    signal: AbortSignal,
  ) => {
    const path = `${prefix}/${what}_lora_adapter`;
    const { status, text } = await call(target, 'POST', path, { signal, body });
    // vLLM answers an unknown path with FastAPI's `detail`, and an unknown adapter with `error`.
    if (status === 404 && !text.includes('"error"'))
      throw new EngineControlError(
        'the engine loads no adapters: start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, or SGLang with --enable-lora',
      );
    const listed = what === 'load';
    if (status >= 300 && (await lists(target, body.lora_name)) !== listed)
      throw new EngineControlError(`the engine's ${path} answered ${status}: ${messageIn(text)}`);
    for (let waited = 0; (await lists(target, body.lora_name)) !== listed; waited += POLL_MS) {
      if (waited >= settleMs)
        throw new EngineControlError(
          `the engine confirmed, but after ${settleMs / 1000} s it ${listed ? 'does not list' : 'still lists'} the adapter`,
        );
      await delay(POLL_MS);
    }
  };
  return {
    loadAdapter: ({ name, path }, signal) => change('load', { lora_name: name, lora_path: path }, signal),
    unloadAdapter: (name, signal) => change('unload', { lora_name: name }, signal),
  };
}

async function lists(target: EngineTarget, model: string): Promise<boolean> {
  const { text } = await question(target, '/v1/models');
  return listSchema.safeParse(tryParseJson(text)).data?.data.some(({ id }) => id === model) === true;
}

type SleepCalls = Omit<EngineControl, 'loadAdapter' | 'unloadAdapter'>;

/** The engine's own words, without the envelope of its error. */
function messageIn(text: string): string {
  return (openAiErrorMessage(text) ?? text).slice(0, SHOWN_MAX);
}

interface Answer {
  status: number;
  text: string;
}

async function call(
  target: EngineTarget,
  method: 'GET' | 'POST',
  path: string,
  { body, signal }: { body?: object; signal: AbortSignal },
): Promise<Answer> {
  // A connection for this call only, so that no proxy of the agent's environment is used.
  const dispatcher = new Agent({ connections: 1, headersTimeout: 0, bodyTimeout: 0 });
  try {
    const asked = { method, dispatcher, signal, maxBytes: ANSWER_MAX_BYTES, body };
    const { status, text = '' } = await askEngine(target, path, asked);
    return { status, text };
  } catch (cause) {
    const why = signal.aborted ? 'it did not answer in time' : errorText(cause);
    throw new EngineControlError(`the engine's ${path} failed: ${why}`, { cause });
  } finally {
    await dispatcher.destroy();
  }
}

function question(target: EngineTarget, path: string): Promise<Answer> {
  return call(target, 'GET', path, { signal: AbortSignal.timeout(QUESTION_MS) });
}

async function post(target: EngineTarget, path: string, signal: AbortSignal, body?: object): Promise<string> {
  const { status, text } = await call(target, 'POST', path, { signal, ...(body === undefined ? {} : { body }) });
  if (status >= 200 && status < 300) return text;
  throw new EngineControlError(`the engine's ${path} answered ${status}: ${messageIn(text)}`);
}

const sleepingSchema = z.object({ is_sleeping: z.boolean() });

function vllmSleep(target: EngineTarget, settleMs: number): SleepCalls {
  const isAsleep = async (): Promise<boolean | undefined> => {
    const { status, text } = await question(target, '/is_sleeping');
    return status === 200 ? sleepingSchema.safeParse(tryParseJson(text)).data?.is_sleeping : undefined;
  };
  const expect = async (asleep: boolean) => {
    for (let waited = 0; (await isAsleep()) !== asleep; waited += POLL_MS) {
      if (waited >= settleMs)
        throw new EngineControlError(
          `the engine confirmed, but it ${asleep ? 'does not sleep' : 'still sleeps'} after ${settleMs / 1000} s`,
        );
      await delay(POLL_MS);
    }
  };
  return {
    isAsleep,
    checkSleep: async () => {
      if ((await isAsleep()) !== undefined) return;
      throw new EngineControlError(
        'the engine has no sleep mode: start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode, or SGLang with --enable-memory-saver',
      );
    },
    sleep: async (level, signal) => {
      await post(target, `/sleep?level=${level}`, signal);
      await expect(true);
    },
    wake: async (level, signal) => {
      if (level === 1) await post(target, '/wake_up', signal);
      else {
        // Level 2 drops the weights. The KV cache comes last, so that reading them has its memory.
        await post(target, '/wake_up?tags=weights', signal);
        await post(target, '/collective_rpc', signal, { method: 'reload_weights' });
        await post(target, '/wake_up?tags=kv_cache', signal);
      }
      await expect(false);
    },
  };
}

const serverInfoSchema = z.object({
  model_path: z.string(),
  enable_memory_saver: z.boolean().default(false),
  enable_weights_cpu_backup: z.boolean().default(false),
});
const successSchema = z.object({ success: z.boolean(), message: z.string().optional() });

function sglangSleep(target: EngineTarget): SleepCalls {
  const serverInfo = async () => {
    const answers = [await question(target, '/server_info')];
    if (answers[0]?.status === 404) answers.push(await question(target, '/get_server_info')); // its older name
    const info = serverInfoSchema.safeParse(tryParseJson(answers.at(-1)?.text ?? ''));
    if (!info.success) throw new EngineControlError("the engine's /server_info cannot be read");
    return info.data;
  };
  return {
    isAsleep: () => Promise.resolve(undefined),
    checkSleep: async (level) => {
      const { enable_memory_saver, enable_weights_cpu_backup } = await serverInfo();
      // Without this flag, SGLang answers 200 and frees nothing.
      if (!enable_memory_saver)
        throw new EngineControlError('the engine has no sleep mode: start SGLang with --enable-memory-saver');
      if (level === 1 && !enable_weights_cpu_backup)
        throw new EngineControlError(
          'SGLang keeps weights in memory only with --enable-weights-cpu-backup: use level 2, or start it with this flag',
        );
    },
    sleep: async (_level, signal) => {
      await post(target, '/release_memory_occupation', signal, {});
    },
    wake: async (level, signal) => {
      await post(target, '/resume_memory_occupation', signal, {});
      const { model_path, enable_weights_cpu_backup } = await serverInfo();
      if (level === 1 && enable_weights_cpu_backup) return;
      const text = await post(target, '/update_weights_from_disk', signal, { model_path });
      const done = successSchema.safeParse(tryParseJson(text)).data;
      if (done?.success !== true)
        throw new EngineControlError(
          `the engine's /update_weights_from_disk failed: ${(done?.message ?? text).slice(0, SHOWN_MAX)}`,
        );
    },
  };
}
