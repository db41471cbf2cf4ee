/** Why an agent ends, and how: the shutdown for each reason, and the exit code. */
import type { Writable } from 'node:stream';
import { EXIT_DONE } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { EXIT_ENGINE, EXIT_REFUSED, EXIT_SIGNALLED } from '../config/exit.ts';
import type { EngineExit } from '../engine/child.ts';
import type { TunnelRefusal } from '../tunnel/types.ts';
import type { DrainCause } from './drain-plan.ts';
import type { JobWatch } from './job-watch.ts';
import type { Shutdown } from './shutdown.ts';

/** The first reason counts. */
export type LifeEnding =
  | { kind: 'drain'; cause: DrainCause; why: string; restart?: true }
  | { kind: 'engine'; exit: EngineExit }
  | { kind: 'fatal'; sign: string }
  /** A fault of the agent itself; its engine is healthy. */
  | { kind: 'fault'; what: string }
  | { kind: 'refused'; refusal: TunnelRefusal };

interface LeaveOptions {
  job: JobWatch;
  shutdown: Shutdown;
  /** False: another rank's agent registers the engine, and reports its end. */
  registers: boolean;
  stderr: Writable;
  /** True if a signal has arrived by now. */
  signalled(): boolean;
}

/** Ends everything that runs, according to `ending`. Resolves with the exit code. */
export async function endLife(ending: LifeEnding, options: LeaveOptions): Promise<number> {
  const { job, shutdown, registers, stderr, signalled } = options;
  const { graceMs } = job.plan('signal');
  switch (ending.kind) {
    case 'drain': {
      const plan = job.plan(ending.cause);
      const { why } = ending;
      const signal = ending.cause === 'signal';
      const warning = signal && why === 'SIGTERM' ? job.warning() : undefined;
      if (!registers) await shutdown.keep(plan, why, warning);
      else {
        const reason = job.drainReason(ending.cause, why);
        await shutdown.drain(plan, why, reason, { fate: signal ? job.fate() : undefined, warning });
      }
      return signalled() ? EXIT_SIGNALLED : EXIT_DONE;
    }
    case 'fault':
      await shutdown.drain(job.plan('request'), `a fault of the agent: ${ending.what}`, 'agent-fault');
      return signalled() ? EXIT_SIGNALLED : EXIT_ENGINE;
    case 'refused':
      // Requests of other agents and of this agent's own ingress may still finish.
      await shutdown.drain(job.plan('request'), 'no gateway has this agent any more', 'drain');
      return EXIT_REFUSED;
    case 'fatal':
      await shutdown.afterFatal(ending.sign, stderr);
      return signalled() ? EXIT_SIGNALLED : EXIT_ENGINE;
    case 'engine':
      // Slurm ends every process of a job at the same moment, and the engine may simply have been the first to end.
      await shutdown.afterEngine(ending.exit, graceMs, stderr, job.fate());
      return signalled() ? EXIT_SIGNALLED : EXIT_ENGINE;
  }
}

/**
 * Closes the parts in order. A part that fails, for example because of a file that cannot be removed, does not keep the
 * other parts open. Never rejects.
 */
export async function closeAll(log: (line: string) => void, parts: readonly (() => unknown)[]): Promise<void> {
  for (const close of parts) {
    try {
      await close();
    } catch (error) {
      log(`at the end: ${errorText(error)}`);
    }
  }
}
