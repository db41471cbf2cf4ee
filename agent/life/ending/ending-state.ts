/** States, events and actions of an agent's life; ending-transitions.ts connects them. */
import type { TerminationSignal } from '../../../shared/lattice/departure-cause.ts';
import type { EngineExit } from '../../engine/engine-process.ts';
import type { JobFate } from '../../host/jobs/batch-job.ts';
import type { TunnelRefusal } from '../../tunnel/tunnel-types.ts';
import type { DrainCause, DrainPlan } from '../drain-plan.ts';

/** Why an agent ends. The first reason counts. */
export type EndReason =
  | { kind: 'drain'; cause: DrainCause; why: string; restart?: true }
  | { kind: 'engine'; exit: EngineExit }
  | { kind: 'fatal'; sign: string }
  /** A fault of the agent itself; its engine is healthy. */
  | { kind: 'fault'; what: string }
  | { kind: 'refused'; refusal: TunnelRefusal };

/** A signal that did not begin the job's end. */
export interface SignalWarning {
  plan: DrainPlan;
  reason: string;
}

export type Wait = 'requests' | 'lines' | 'engine' | 'returned' | 'fate' | 'log' | 'goodbye' | 'stopped';

export type LifePhase =
  | 'draining'
  | 'closing'
  | 'answering'
  | 'asking'
  | 'collecting'
  | 'reporting'
  | 'leaving'
  | 'stopping';

export type LifeEvent =
  | { kind: 'end'; reason: EndReason }
  /** `at`: milliseconds of a monotonic clock. */
  | { kind: 'signal'; signal: TerminationSignal; at: number }
  /** The first admission was granted or refused, or given up because of the end. The phases begin after it. */
  | { kind: 'joined' }
  /** The action that a phase waits for has completed. `engine`: its process has exited. */
  | { kind: 'done'; wait: Wait }
  /** The batch system's reason of the job's end; undefined: nothing ends it. */
  | { kind: 'fate'; fate: JobFate | undefined }
  /** The batch system lets the job continue after a SIGTERM. */
  | { kind: 'warning'; warning: SignalWarning }
  /** `told`: all gateways have LEFT. */
  | { kind: 'left'; told: boolean }
  /** A deadline has passed. */
  | { kind: 'time' };

export type LifeAction =
  | { kind: 'log'; text: string }
  /** Publishes DOWN, with a reason for the registry. */
  | { kind: 'down'; reason: string }
  /** Result: `fate`. */
  | { kind: 'ask-fate' }
  /** Result: `warning`, or none. */
  | { kind: 'ask-warning' }
  /** Refuses new requests. Result: `requests` if none runs any more. */
  | { kind: 'drain' }
  /** Result: `lines` if no line of a batch runs any more, or if all were returned. */
  | { kind: 'drain-lines' }
  | { kind: 'return-lines' }
  /** Result: `engine` if it exits. */
  | { kind: 'watch-engine' }
  /** Returns running requests, for other nodes. Result: `returned`. */
  | { kind: 'return-requests' }
  /** Repeats the engine's last lines on stderr. */
  | { kind: 'repeat-output' }
  /** Result: `log`. */
  | { kind: 'upload-log' }
  /** Result: `left` and `goodbye`. */
  | { kind: 'leave' }
  /** Result: `stopped`. */
  | { kind: 'stop-engine'; graceMs: number }
  /** Ends the grace time of an engine that is being stopped. */
  | { kind: 'hurry' }
  | { kind: 'ended'; code: number };

/** What a step may read. */
export interface LifeView {
  /** By the clock of waits. */
  now: number;
  /** False: the agent of rank 0 registers the engine, and reports its end. */
  registers: boolean;
  /** Running requests of gateways and of other agents. */
  inFlight: number;
  plan(cause: DrainCause): DrainPlan;
  /** Why the node ends, for the registry. */
  drainReason(cause: DrainCause, why: string): string;
}

export interface LifeState {
  readonly reason: EndReason | undefined;
  readonly joined: boolean;
  /** The phases have begun. */
  readonly begun: boolean;
  /** The current phase and the later ones; empty before they begin and after them. */
  readonly phases: readonly LifePhase[];
  /** Deadlines of the current phase. */
  readonly waits: ReadonlyMap<Wait, number>;
  readonly done: ReadonlySet<Wait>;
  /** `at` of the first signal. */
  readonly firstSignalAt: number | undefined;
  /** A second signal has ended the waits. */
  readonly forced: boolean;
  /** Deadline of the drain by its plan, and by a later signal. */
  readonly drainUntil: number;
  readonly shortUntil: number;
  /** Time from SIGTERM to SIGKILL for the engine. */
  readonly graceMs: number;
  readonly fateAsked: boolean;
  /** Deadline of lines that were returned. */
  readonly linesUntil: number;
  /** True if a gateway was not informed of the end, so the last will must be delivered. */
  readonly untold: boolean;
}

/** For waits that the limit of their action ends. */
export const NO_DEADLINE = Number.POSITIVE_INFINITY;

export const ALIVE: LifeState = {
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
  untold: false,
};
