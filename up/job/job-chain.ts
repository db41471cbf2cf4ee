/**
 * Decides how jobs of a run follow each other (`--keep`). A successor starts before its predecessor's time limit; when
 * it serves, the predecessor drains. Slurm starts the successors, so the chain continues while this machine sleeps.
 * Pure.
 */
import type { RunJob } from './run-job-list.ts';

export interface ChainWish {
  /** No job is submitted that would start after this time, in ms since 1970. */
  untilMs: number;
  /** Time limit of each job. */
  timeMs: number;
}

export interface ChainNode {
  session: string;
  /** Id of its job. */
  job: string;
  /** True if it serves the model. */
  isReady: boolean;
}

export type ChainAction =
  /** Submits a job; with `after` it starts `minutes` after the start of another job. */
  | { kind: 'submit'; after?: { job: string; minutes: number } }
  /** Lets a successor start now, because its predecessor has ended early. */
  | { kind: 'release'; job: string }
  /** Lets a job finish its requests and end. */
  | { kind: 'drain'; job: string; session: string }
  /** Ends a job that waits. */
  | { kind: 'cancel'; job: string };

export interface ChainView {
  /** The run's jobs in the order of their submission. */
  jobs: readonly RunJob[];
  nodes: readonly ChainNode[];
  nowMs: number;
  /** Absent: the run ends with its last job. */
  wish: ChainWish | undefined;
  /** Time from the submission of the first job until it served, if it was measured. */
  readyMs: number | undefined;
}

/** Maximum number of successors that wait in Slurm: with jobs of 4 hours, this machine may sleep for 12 hours. */
const AHEAD_MAX = 3;
/** A successor starts this long before its predecessor's end, because it may wait for GPUs and must load the model. */
const LEAD_MS = 15 * 60_000;
/** Slurm sends the signal to drain up to a minute early (sbatch(1), --signal), 120 s before the end. */
const DRAINS_EARLY_MS = 180_000;
const MINUTE_MS = 60_000;

/** Milliseconds between the start of a successor and the end of its predecessor. */
function leadMs(timeMs: number, readyMs = 0): number {
  return Math.min(timeMs / 2, Math.max(LEAD_MS, DRAINS_EARLY_MS + 2 * readyMs));
}

/** Minutes from the start of a job to the start of its successor. */
export function successorMinutes(timeMs: number, readyMs?: number): number {
  return Math.max(1, Math.floor((timeMs - leadMs(timeMs, readyMs)) / MINUTE_MS));
}

export function decideChain(view: ChainView): ChainAction[] {
  const alive = view.jobs.filter(({ state }) => state !== 'ended');
  return [...drains(alive, view), ...releases(alive), ...extensions(alive, view)];
}

/** A job drains if a later one serves. */
function drains(alive: readonly RunJob[], { nodes }: ChainView): ChainAction[] {
  const ready = alive.flatMap(({ id }) => nodes.find(({ job, isReady }) => job === id && isReady) ?? []);
  return ready.slice(0, -1).map(({ job, session }) => ({ kind: 'drain', job, session }));
}

function releases(alive: readonly RunJob[]): ChainAction[] {
  const [first] = alive;
  const waits = first?.state === 'pending' && first.reason === 'Dependency';
  return waits ? [{ kind: 'release', job: first.id }] : [];
}

function extensions(alive: readonly RunJob[], { wish, nowMs, readyMs }: ChainView): ChainAction[] {
  if (wish === undefined) return [];
  const last = alive.at(-1);
  if (last === undefined) return nowMs < wish.untilMs ? [{ kind: 'submit' }] : [];
  const successors = alive.slice(1).filter(({ state }) => state === 'pending');
  const minutes = successorMinutes(wish.timeMs, readyMs);
  const stepMs = minutes * MINUTE_MS;
  if (successors.length >= AHEAD_MAX || startOf(alive, stepMs, nowMs) + stepMs >= wish.untilMs) return [];
  return [{ kind: 'submit', after: { job: last.id, minutes } }];
}

/** When the last job starts, if each follows the one before it. */
function startOf(alive: readonly RunJob[], stepMs: number, nowMs: number): number {
  const begun = alive.findLastIndex(({ state }) => state === 'running');
  const fromMs = alive[begun]?.startMs ?? nowMs;
  return fromMs + (alive.length - 1 - Math.max(0, begun)) * stepMs;
}
