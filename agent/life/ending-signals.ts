/** Decides which signals end the agent, and when a repeated signal forces the end. */
import { TERMINATION_SIGNALS, type TerminationSignal } from '../../shared/lattice/departure-cause.ts';
import type { DrainCause } from './drain-plan.ts';

/** Subscribes to the process's signals. Returns a function that unsubscribes. Injected in tests. */
export type SignalSource = (handler: (signal: TerminationSignal) => void) => () => void;

export const processSignals: SignalSource = (handler) => {
  for (const signal of TERMINATION_SIGNALS) process.on(signal, handler);
  return () => {
    for (const signal of TERMINATION_SIGNALS) process.off(signal, handler);
  };
};

/**
 * Signals within this time count as one event. Slurm sends an srun task TERM, CONT, TERM at its time limit, and scancel
 * reaches the agent both directly and through the script's trap.
 */
const ECHO_MS = 1000;
/**
 * A second SIGINT within this time is a copy: npm and npx pass on the Ctrl-C that the terminal has already sent. A
 * person is slower.
 */
const REPEATED_SIGINT_MS = 200;

interface SignalOutcome {
  kind: 'drain' | 'force' | 'echo';
  cause: DrainCause;
}

/**
 * @param firstAt when the first signal arrived, in milliseconds of a monotonic clock; undefined for the first signal
 * @param now the same clock
 */
export function readSignal(signal: TerminationSignal, firstAt: number | undefined, now: number): SignalOutcome {
  const cause: DrainCause = signal === 'SIGUSR1' ? 'warning' : 'signal';
  if (firstAt === undefined) return { kind: 'drain', cause };
  const echo = now - firstAt < (signal === 'SIGINT' ? REPEATED_SIGINT_MS : ECHO_MS);
  return { kind: echo ? 'echo' : 'force', cause };
}
