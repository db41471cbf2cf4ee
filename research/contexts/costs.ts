import { normal, type Random } from '../../scheduler/simulator/random.ts';

/**
 * What a worker keeps between two tasks (paper, §4): nothing; the environment and the weights on its disk; or the whole
 * context, with the model in GPU memory.
 */
export type Policy = 'naive' | 'partial' | 'pervasive';

/**
 * Start of a worker: environment staged and unpacked, first load. Seconds; derived from pv4 (2,942 s, 2,400 s of them
 * compute).
 */
const STARTUP = { meanS: 460, cv: 0.12 };

/**
 * One load of the model from the local disk. pv3_1 and pv3_100 agree on a mean of 14.8 s; the lower bound is the
 * shortest task of pv3_1.
 */
const LOAD = { meanS: 13.3, cv: 2, leastS: 5.2, mostS: 375 };
/** Sandbox and dispatch of a task that keeps its files on disk: wall time minus execution of pv3_1. */
const PARTIAL_DISPATCH_S = 3.7;
/** Read of the model from the shared file system for every task: derived from pv1. */
const PULL = { meanS: 92, cv: 0.3 };
/** A call of a context that stays loaded: pv4_1. */
const PERVASIVE_DISPATCH_S = 0.027;

/**
 * Speed of one worker relative to its kind, and of one task relative to its worker. Without the first, 3,000 lines per
 * task pack perfectly.
 */
export const WORKER_CV = 0.1;
const TASK_CV = 0.2;

/** The paper's input ends with claims without text. Their time is the lowest in its Table 2. */
const EMPTY_S = 0.0008;

/** Draws from a log-normal distribution, given its mean and coefficient of variation. */
export function lognormal(random: Random, mean: number, cv: number): number {
  const variance = Math.log(1 + cv * cv);
  return Math.exp(Math.log(mean) - variance / 2 + Math.sqrt(variance) * normal(random));
}

/** A naive worker does not stage weights at its start: each of its tasks pulls them. */
export function startupS(policy: Policy, random: Random): number {
  return lognormal(random, STARTUP.meanS - (policy === 'naive' ? PULL.meanS : 0), STARTUP.cv);
}

/**
 * Seconds of a task in addition to its inferences: `counted` is part of the task's execution time (the paper's Table
 * 2), `dispatch` is not.
 */
export function overheadOf(policy: Policy, random: Random): { counted: number; dispatch: number } {
  if (policy === 'pervasive') return { counted: 0, dispatch: PERVASIVE_DISPATCH_S };
  const load = Math.min(LOAD.mostS, Math.max(LOAD.leastS, lognormal(random, LOAD.meanS, LOAD.cv)));
  const dispatch = policy === 'naive' ? lognormal(random, PULL.meanS, PULL.cv) : PARTIAL_DISPATCH_S;
  return { counted: load, dispatch };
}

/** Seconds that a worker of this speed takes for `full` claims with text and `empty` ones without, one at a time. */
export function computeS(full: number, empty: number, secondsPerInference: number, random: Random): number {
  return full * secondsPerInference * lognormal(random, 1, TASK_CV) + empty * EMPTY_S;
}
