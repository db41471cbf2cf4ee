/** Options for lines of batches, from the engine's command line. */
import { commandWords, engineName, flagValue } from '../engine/engine-command.ts';

/** How far the priority of lines is below requests, which have the engine's default. */
const BEHIND = 1_000;
/** vLLM's default of `--max-num-seqs`; SGLang chooses the number itself. */
const SLOTS = 256;
/**
 * Slots of an engine that does not report its queue (llama.cpp, Ollama, TGI): a line that waits in it too long would
 * fail although the engine is healthy.
 */
const UNREPORTED_QUEUE_SLOTS = 8;

export interface LineOptions {
  /** Sequences that the engine runs concurrently. */
  slots: number;
  /**
   * `priority` of each line's request; undefined: priorities are not enabled, and vLLM would refuse a request that has
   * one.
   */
  priority: number | undefined;
}

/** `tellsQueue`: its metrics report how many requests wait. */
export function readLineOptions(
  command: readonly string[] | undefined,
  maxRunning: number | undefined,
  tellsQueue: boolean,
): LineOptions {
  const words = commandWords(command ?? []);
  const said = Number(flagValue(words, '--max-num-seqs', '--max-running-requests', '--parallel'));
  const slots = Number.isInteger(said) && said > 0 ? said : tellsQueue ? SLOTS : (maxRunning ?? UNREPORTED_QUEUE_SLOTS);
  return { slots: Math.min(slots, maxRunning ?? slots), priority: linePriority(words) };
}

/**
 * The engines order priorities in opposite directions. vLLM: lower goes first, requests have 0, and any other value is
 * an error unless the scheduling policy is `priority`. SGLang: higher goes first unless
 * `--schedule-low-priority-values-first` is given, and a request without a priority goes after all that have one. So
 * lines may have a priority only if `--default-priority-value` gives requests theirs.
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
