/** What the engine's command line says of lines of batches. */
import { commandWords, engineName, flagValue } from '../engine/command.ts';

/** How far lines stand behind requests, which have the engine's default. */
const BEHIND = 1_000;
/** vLLM's default of `--max-num-seqs`, which SGLang decides by itself. */
const SLOTS = 256;
/** Of an engine that does not tell its queue (llama.cpp, Ollama, TGI): what waits there for too long would fail, though the engine is well. */
const UNTOLD_SLOTS = 8;

export interface LineOptions {
  /** Sequences that the engine runs at once. */
  slots: number;
  /** `priority` of each line's request; undefined: the engine has none, and vLLM refuses requests that name one. */
  priority: number | undefined;
}

/** `tellsQueue`: its metrics say how many requests wait. */
export function readLineOptions(
  command: readonly string[] | undefined,
  maxRunning: number | undefined,
  tellsQueue: boolean,
): LineOptions {
  const words = commandWords(command ?? []);
  const said = Number(flagValue(words, '--max-num-seqs', '--max-running-requests', '--parallel'));
  const slots = Number.isInteger(said) && said > 0 ? said : tellsQueue ? SLOTS : (maxRunning ?? UNTOLD_SLOTS);
  return { slots: Math.min(slots, maxRunning ?? slots), priority: linePriority(words) };
}

/**
 * The engines count in opposite directions. vLLM: lower goes first, requests have 0, any other is an error unless the scheduling policy is
 * `priority`. SGLang: higher goes first unless `--schedule-low-priority-values-first`, and a request without one goes behind all that have
 * one: lines may name a priority only where `--default-priority-value` gives requests theirs.
 */
function linePriority(words: readonly string[]): number | undefined {
  switch (engineName(words)) {
    case 'vllm':
      return flagValue(words, '--scheduling-policy') === 'priority' ? BEHIND : undefined;
    case 'sglang': {
      const requests = flagValue(words, '--default-priority-value');
      if (!words.includes('--enable-priority-scheduling') || !/^-?\d+$/.test(requests ?? '')) return undefined;
      const lowFirst = words.includes('--schedule-low-priority-values-first');
      return Number(requests) + (lowFirst ? BEHIND : -BEHIND);
    }
    default:
      return undefined;
  }
}
