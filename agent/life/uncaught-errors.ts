/**
 * Handles uncaught errors, which are faults of this program. The running engine is worth more than a clean process, so
 * the agent drains and does not exit immediately.
 */
import { errorText } from '../../shared/text/error-text.ts';

/** Subscribes to faults of the process. Returns a function that unsubscribes. Injected in tests. */
export type FaultSource = (handler: (error: unknown) => void) => () => void;

const EVENTS = ['uncaughtException', 'unhandledRejection'] as const;

/**
 * Without a listener Node would end the process, and the orphan guard would kill the engine without a drain and without
 * LEFT.
 */
export const processFaults: FaultSource = (handler) => {
  for (const event of EVENTS) process.on(event, handler);
  return () => {
    for (const event of EVENTS) process.off(event, handler);
  };
};

/** Maximum number of logged faults. A fault that repeats adds no information. */
const LOGGED_MAX = 10;
const TEXT_MAX = 4_096;

export class ProcessFaults {
  readonly #log: (line: string) => void;
  #seen = 0;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  /** Logs the fault. Returns it as one line. */
  record(error: unknown): string {
    const what = errorText(error);
    if (++this.#seen <= LOGGED_MAX) {
      const text = error instanceof Error ? (error.stack ?? what) : what;
      this.#log(`internal error of the agent: ${text.slice(0, TEXT_MAX)}`);
    }
    return what.split('\n')[0]?.slice(0, 200) ?? '';
  }
}
