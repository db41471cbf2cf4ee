/** Why an agent leaves, and its way out: the shutdown that fits the reason, and the exit code. */
import type { Writable } from 'node:stream';
import { EXIT_DONE } from '../../shared/command-line/index.ts';
import { EXIT_ENGINE, EXIT_REFUSED, EXIT_SIGNALLED } from '../config/exit.ts';
import type { EngineExit } from '../engine/child.ts';
import type { TunnelRefusal } from '../tunnel/types.ts';
import type { DrainCause } from './drain-plan.ts';
import type { JobWatch } from './job-watch.ts';
import type { Shutdown } from './shutdown.ts';

/** The first reason is the one that counts. */
export type LifeEnding =
  | { kind: 'drain'; cause: DrainCause; why: string; restart?: true }
  | { kind: 'engine'; exit: EngineExit }
  | { kind: 'fatal'; sign: string }
  /** Of the agent itself. Its engine is well. */
  | { kind: 'fault'; what: string }
  | { kind: 'refused'; refusal: TunnelRefusal };

interface LeaveOptions {
  job: JobWatch;
  shutdown: Shutdown;
  /** False: another rank's agent registers the engine, and tells of its end. */
  registers: boolean;
  stderr: Writable;
  /** Whether a signal has come by now. */
  signalled(): boolean;
}

/** Ends what runs, as `ending` has it. Resolves with the exit code. */
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
      // What other agents and this agent's own ingress asked for may end all the same.
      await shutdown.drain(job.plan('request'), 'no gateway has this agent any more', 'drain');
      return EXIT_REFUSED;
    case 'fatal':
      await shutdown.afterFatal(ending.sign, stderr);
      return signalled() ? EXIT_SIGNALLED : EXIT_ENGINE;
    case 'engine':
      // Slurm ends every process of a job in one breath; the engine may simply have been the first to go.
      await shutdown.afterEngine(ending.exit, graceMs, stderr, job.fate());
      return signalled() ? EXIT_SIGNALLED : EXIT_ENGINE;
  }
}

/** Closes one part after the other. A part that fails, such as a file that cannot be removed, keeps no other part open. Never rejects. */
export async function closeAll(log: (line: string) => void, parts: readonly (() => unknown)[]): Promise<void> {
  for (const close of parts) {
    try {
      await close();
    } catch (error) {
      log(`at the end: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}
