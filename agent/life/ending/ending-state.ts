/** States, events and actions of the state machine of an agent's end; ending-transitions.ts connects them. */
import type { JobFate } from '../../../node/batch-systems/batch-job.ts';
import type { TerminationSignal } from '../../../shared/lattice/departure-cause.ts';
import type { EngineExit } from '../../engine/engine-process.ts';
import type { TunnelRefusal } from '../../tunnel/tunnel-types.ts';
import type { DrainCause, DrainPlan } from '../drain-plan.ts';

/** Why an agent ends. Only the first reason counts. */
export type EndReason =
  | { kind: 'drain'; cause: DrainCause; why: string; restart?: true }
  | { kind: 'engine'; exit: EngineExit }
  | { kind: 'fatal'; sign: string }
  /** A fault of the agent itself. Its engine is healthy. */
  | { kind: 'fault'; what: string }
  | { kind: 'refused'; refusal: TunnelRefusal };

/** The meaning of a signal that is only a warning. */
export interface SignalWarning {
  plan: DrainPlan;
  reason: string;
}

export type Wait = 'requests' | 'lines' | 'engine' | 'returned' | 'fate' | 'log' | 'goodbye' | 'stopped';

export type EndingPhase =
  | 'draining'
  | 'closing'
  | 'answering'
  | 'asking'
  | 'collecting'
  | 'reporting'
  | 'leaving'
  | 'stopping';

export type EndingEvent =
  | { kind: 'end'; reason: EndReason }
  /** `at`: milliseconds of a monotonic clock. */
  | { kind: 'signal'; signal: TerminationSignal; at: number }
  /**
   * The first admission was granted or refused, or it was given up because the agent ends. The phases begin after this
   * event.
   */
  | { kind: 'joined' }
  /** One of the current phase's waits is over. `engine`: the engine's process has exited. */
  | { kind: 'done'; wait: Wait }
  /** Why the batch system ends the job; undefined if the job continues. */
  | { kind: 'fate'; fate: JobFate | undefined }
  /** The batch system lets the job continue after a SIGTERM. */
  | { kind: 'warning'; warning: SignalWarning }
  /** `acknowledged`: all gateways have acknowledged LEFT. */
  | { kind: 'left'; acknowledged: boolean }
  /** A deadline has passed. */
  | { kind: 'time' };

export type EndingAction =
  | { kind: 'log'; text: string }
  /** Publishes DOWN with a reason for the registry. */
  | { kind: 'down'; reason: string }
  /** Asks the batch system why the job ends. Its event: `fate`. */
  | { kind: 'ask-fate' }
  /** Asks the batch system whether the job continues. Its event: `warning`, or none. */
  | { kind: 'ask-warning' }
  /** Refuses new requests. Its event: `requests`, when none runs any more. */
  | { kind: 'drain' }
  /** Begins no further lines of batches. Its event: `lines`, when none runs any more or all were returned. */
  | { kind: 'drain-lines' }
  | { kind: 'return-lines' }
  /** Watches the engine's process. Its event: `engine`, when the process exits. */
  | { kind: 'watch-engine' }
  /** Returns running requests, so that other nodes may continue them. Its event: `returned`. */
  | { kind: 'return-requests' }
  /** Repeats the engine's last lines on stderr. */
  | { kind: 'repeat-output' }
  /** Uploads the end of the log. Its event: `log`, also if the upload fails. */
  | { kind: 'upload-log' }
  /** Publishes LEFT. Its events: `left` and `goodbye`. */
  | { kind: 'leave' }
  /** Ends the engine's processes. Its event: `stopped`, when none of them runs. */
  | { kind: 'stop-engine'; graceMs: number }
  /** Sends SIGKILL to an engine that is being stopped, without waiting for the rest of `graceMs`. */
  | { kind: 'hurry' }
  | { kind: 'ended'; code: number };

/** What a transition may read from outside the state. */
export interface EndingView {
  /** Milliseconds by the clock of waits. */
  now: number;
  /** True if this agent registers the engine and reports its end. On a multi-machine engine only rank 0 does. */
  registers: boolean;
  /** Number of running requests of gateways and of other agents. */
  inFlight: number;
  plan(cause: DrainCause): DrainPlan;
  /** Why the node ends, for the registry. */
  drainReason(cause: DrainCause, why: string): string;
}

export interface EndingState {
  readonly reason: EndReason | undefined;
  readonly joined: boolean;
  /** True after the phases have begun. */
  readonly begun: boolean;
  /** The current phase and the later ones. Empty before the first phase and after the last. */
  readonly phases: readonly EndingPhase[];
  /** The waits of the current phase, each with its deadline. */
  readonly waits: ReadonlyMap<Wait, number>;
  readonly done: ReadonlySet<Wait>;
  /** `at` of the first signal. */
  readonly firstSignalAt: number | undefined;
  /** True after a second signal, which ends almost all waits. */
  readonly forced: boolean;
  /**
   * `drainUntil`: deadline of the drain by its plan. `shortUntil`: earlier deadline after a signal during the drain.
   */
  readonly drainUntil: number;
  readonly shortUntil: number;
  /** Milliseconds from SIGTERM to SIGKILL of the engine. */
  readonly graceMs: number;
  readonly fateAsked: boolean;
  /** Deadline for committing the results of lines that were returned. */
  readonly linesUntil: number;
  /** True if a gateway was not informed of the end, so the last will must be delivered. */
  readonly needsLastWill: boolean;
}

/** Deadline of waits whose action has its own time limit. */
export const NO_DEADLINE = Number.POSITIVE_INFINITY;

export const ALIVE: EndingState = {
  reason: undefined,
  joined: false,
  begun: false,
  phases: [],
  waits: new Map(),
  done: new Set(),
  firstSignalAt: undefined,
  forced: false,
  drainUntil: NO_DEADLINE,
  shortUntil: NO_DEADLINE,
  graceMs: 0,
  fateAsked: false,
  linesUntil: 0,
  needsLastWill: false,
};
