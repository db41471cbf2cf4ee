/** Options for running lines of batches, read from the engine's command line. */
import { commandWords, flagValue } from '../engine/engine-command.ts';
import { engineKind } from '../engine/engine-kinds.ts';

/** Difference between the priority of batch lines and the engine's default priority. Requests have the default. */
const BEHIND = 1_000;
/** vLLM's default of `--max-num-seqs`. SGLang chooses the number itself; this value is assumed for it. */
const SLOTS = 256;
/**
 * Slots of an engine that does not report its queue (llama.cpp, Ollama, TGI). A small number, because a line that waits
 * too long in such a queue would fail although the engine is healthy.
 */
const UNREPORTED_QUEUE_SLOTS = 8;

export interface LineOptions {
  /** Maximum number of sequences that the engine runs concurrently. */
  slots: number;
  /**
   * Value of `priority` in each line's request. Undefined if the engine has no priorities: vLLM refuses a request that
   * sets one then.
   */
  priority: number | undefined;
}

/** @param tellsQueue true if the engine's metrics report how many requests wait */
export function readLineOptions(
  command: readonly string[] | undefined,
  maxRunning: number | undefined,
  tellsQueue: boolean,
): LineOptions {
  const words = commandWords(command ?? []);
  const declaredSlots = Number(flagValue(words, '--max-num-seqs', '--max-running-requests', '--parallel'));
  const slots =
    Number.isInteger(declaredSlots) && declaredSlots > 0
      ? declaredSlots
      : tellsQueue
        ? SLOTS
        : (maxRunning ?? UNREPORTED_QUEUE_SLOTS);
  return { slots: Math.min(slots, maxRunning ?? slots), priority: linePriority(words) };
}

/**
 * The two engines order priorities in opposite directions. vLLM runs lower values first. A request has the value 0, and
 * any other value is an error unless the scheduling policy is `priority`. SGLang runs higher values first, unless
 * `--schedule-low-priority-values-first` is given. It runs a request without a value after all requests with one. So in
 * SGLang lines get a priority only if `--default-priority-value` gives one to requests.
 */
function linePriority(words: readonly string[]): number | undefined {
  switch (engineKind(words)?.name) {
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
