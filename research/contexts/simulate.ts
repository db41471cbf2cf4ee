import { Heap } from '../../scheduler/simulator/heap.ts';
import { type Random, seededRandom } from '../../scheduler/simulator/random.ts';
import { computeS, lognormal, overheadOf, type Policy, startupS, WORKER_CV } from './costs.ts';
import type { SiteGpu } from './gpus.ts';

/** A worker of the pool: one GPU, from the second it connects to the second it is evicted. */
export interface Worker {
  gpu: SiteGpu;
  joinS: number;
  /** Second of its eviction, which has no warning. absent: it stays. */
  leaveS?: number;
}

/** Many inferences, in the order of the input. The last `empty` of them have no text. */
export interface Work {
  inferences: number;
  empty: number;
}

export interface Run {
  work: Work;
  workers: readonly Worker[];
  policy: Policy;
  /** Inferences of one task. */
  batch: number;
  seed: number;
  /** False: the workers are ready when they join (a plain script on one's own GPU). Default: true. */
  staged?: boolean;
  /**
   * An engine with continuous batching; absent: one inference at a time, and a task is committed as a whole, as in the
   * paper.
   */
  engine?: Engine;
}

/** An engine that decodes several lines concurrently and commits each line separately. */
export interface Engine {
  /** Lines in flight. */
  window: number;
  /** Throughput with a full window, relative to one line at a time. */
  speedup: number;
  /** Longest time that finished lines wait for their commit. */
  flushS: number;
}

export interface Result {
  /** Second of the last commit. */
  endS: number;
  done: number;
  /** Inferences that were computed, completely or partly, and discarded. */
  lost: number;
  /** Execution times of the tasks that ended, in seconds (the paper's Table 2). */
  tasksS: Float64Array;
  /** Commits in order of time. */
  commits: { s: number; inferences: number }[];
  /** Mean number of connected workers from 0 to `endS`. */
  averageWorkers: number;
}

interface Task {
  full: number;
  empty: number;
}
interface Seat extends Worker {
  secondsPerInference: number;
}
interface Finish {
  seat: Seat;
  task?: Task;
  startS: number;
  execS: number;
  evicted: boolean;
}

/**
 * A central queue from which workers pull, with one task in progress each (paper, Figure 3). Pure: all randomness is
 * from the seed.
 */
export function simulateWorkers(run: Run): Result {
  const random = seededRandom(run.seed);
  const queue = tasksOf(run.work, run.batch);
  const again: Task[] = [];
  const idle: Seat[] = [];
  const events = new Heap<Finish>();
  const result = { endS: 0, done: 0, lost: 0, commits: [] as Result['commits'] };
  const tasksS: number[] = [];
  let next = 0;

  const start = (seat: Seat, nowS: number) => {
    if (seat.leaveS !== undefined && nowS >= seat.leaveS) return;
    const task = again.pop() ?? queue[next++];
    if (task === undefined) return void idle.push(seat);
    const overhead = overheadOf(run.policy, random);
    const execS = overhead.counted + taskS(task, seat, run.engine, random);
    const endS = nowS + overhead.dispatch + execS;
    const evicted = seat.leaveS !== undefined && endS > seat.leaveS;
    events.push(evicted ? (seat.leaveS ?? endS) : endS, 0, { seat, task, startS: endS - execS, execS, evicted });
  };
  /** A worker without a task that is still here. The others have left while they waited. */
  const nextIdle = (nowS: number): Seat | undefined => {
    for (let seat = idle.pop(); seat !== undefined; seat = idle.pop())
      if ((seat.leaveS ?? nowS + 1) > nowS) return seat;
    return undefined;
  };
  const commit = (s: number, inferences: number) => {
    if (inferences === 0) return;
    result.done += inferences;
    result.endS = s;
    result.commits.push({ s, inferences });
  };
  const seats = run.workers.map((worker) => seatOf(worker, random));
  for (const seat of seats) {
    const readyS = run.staged === false ? seat.joinS : seat.joinS + startupS(run.policy, random);
    events.push(readyS, 0, { seat, startS: readyS, execS: 0, evicted: false });
  }
  for (let event = events.pop(); event !== undefined; event = events.pop()) {
    const [nowS, { seat, task, startS, execS, evicted }] = [event.key, event.item];
    if (task === undefined) {
      start(seat, nowS);
    } else if (!evicted) {
      tasksS.push(execS);
      commit(nowS, task.full + task.empty);
      start(seat, nowS);
    } else {
      const kept = keptAtEviction(task, (nowS - startS) / execS, execS, run.engine);
      commit(nowS, kept.committed);
      result.lost += kept.lost;
      again.push(remaining(task, kept.committed));
      const waiting = nextIdle(nowS);
      if (waiting !== undefined) start(waiting, nowS);
    }
  }
  return { ...result, tasksS: Float64Array.from(tasksS), averageWorkers: averageWorkers(run.workers, result.endS) };
}

function seatOf(worker: Worker, random: Random): Seat {
  return { ...worker, secondsPerInference: worker.gpu.secondsPerInference * lognormal(random, 1, WORKER_CV) };
}

function tasksOf({ inferences, empty }: Work, batch: number): Task[] {
  const tasks: Task[] = [];
  const full = inferences - empty;
  for (let at = 0; at < inferences; at += batch) {
    const end = Math.min(inferences, at + batch);
    const withText = Math.max(0, Math.min(end, full) - at);
    tasks.push({ full: withText, empty: end - at - withText });
  }
  return tasks;
}

function taskS(
  { full, empty }: Task,
  { secondsPerInference }: Seat,
  engine: Engine | undefined,
  random: Random,
): number {
  const oneByOne = computeS(full, empty, secondsPerInference, random);
  return engine === undefined ? oneByOne : oneByOne / engine.speedup;
}

/**
 * Without an engine the whole task is lost. With commits by line, the lines in flight and the unflushed ones are lost.
 */
function keptAtEviction(task: Task, share: number, execS: number, engine: Engine | undefined) {
  const all = task.full + task.empty;
  if (engine === undefined || share <= 0) return { committed: 0, lost: share > 0 ? all : 0 };
  const finished = Math.floor(all * Math.min(1, share));
  const unflushed = Math.min(finished, Math.ceil((all / execS) * engine.flushS));
  const committed = finished - unflushed;
  return { committed, lost: unflushed + Math.min(engine.window, all - finished) };
}

function remaining(task: Task, committed: number): Task {
  const full = Math.max(0, task.full - committed);
  return { full, empty: task.empty - Math.max(0, committed - task.full) };
}

function averageWorkers(workers: readonly Worker[], endS: number): number {
  if (endS === 0) return 0;
  const spans = workers.map(({ joinS, leaveS = endS }) => Math.max(0, Math.min(leaveS, endS) - Math.min(joinS, endS)));
  return spans.reduce((sum, span) => sum + span, 0) / endS;
}
