/**
 * Uncaught errors: faults of this program. The running engine is worth more than a clean process, so the agent drains
 * and does not exit immediately.
 */
import { errorText } from '../../shared/text/error-text.ts';

/** Subscribes to faults of the process and returns a function that unsubscribes. Injected in tests. */
export type FaultSource = (handler: (error: unknown) => void) => () => void;

const EVENTS = ['uncaughtException', 'unhandledRejection'] as const;

/** Without a listener Node ends the process, and the guard then kills the engine, without a drain and without LEFT. */
export const processFaults: FaultSource = (handler) => {
  for (const event of EVENTS) process.on(event, handler);
  return () => {
    for (const event of EVENTS) process.off(event, handler);
  };
};

/** A fault that repeats adds no information after this many log entries. */
const LOGGED_MAX = 10;
const TEXT_MAX = 4_096;

export class ProcessFaults {
  readonly #log: (line: string) => void;
  #seen = 0;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  /** Logs the fault and returns it in one line. */
  tell(error: unknown): string {
    const what = errorText(error);
    if (++this.#seen <= LOGGED_MAX) {
      const text = error instanceof Error ? (error.stack ?? what) : what;
      this.#log(`a fault of the agent: ${text.slice(0, TEXT_MAX)}`);
    }
    return what.split('\n')[0]?.slice(0, 200) ?? '';
  }
}
