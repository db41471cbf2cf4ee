import type { Expected } from './evaluate.ts';
import type { DeploymentPlan } from './types.ts';

export interface Course {
  expected: Expected;
  /** Requests that wait already. */
  waiting: number;
  /** Seconds in which a share of the GPUs serves nothing. */
  darkS: number;
  changed: number;
  /** Load of what runs now, and of what comes. */
  loadBefore: number;
  loadAfter: number;
}

/** A backlog never drains slower than at this share of the capacity: demand does not stay above it for ever. */
const SPARE_MIN = 0.05;

/**
 * Request seconds of waiting in a course of events, as a fluid: while a share of the GPUs is dark the rest serves; what is left at the end of the horizon
 * drains at the spare capacity.
 */
export function backlogSeconds({ expected, waiting: before, darkS, changed, loadBefore, loadAfter }: Course): number {
  const demand = expected.demand.reduce((sum, one) => sum + one, 0);
  const capacity = (load: number) => (load > 0 ? demand / load : Number.POSITIVE_INFINITY);
  let [waiting, area] = [before, 0];
  const phase = (rate: number, seconds: number) => {
    const end = waiting + (demand - rate) * seconds;
    if (end >= 0) {
      area += ((waiting + end) / 2) * seconds;
      waiting = end;
    } else {
      area += waiting ** 2 / (2 * (rate - demand));
      waiting = 0;
    }
  };
  if (darkS > 0) phase(capacity(loadBefore) * (1 - changed), darkS);
  const after = capacity(loadAfter);
  phase(after, Math.max(0, expected.horizonS - darkS));
  if (waiting === 0) return area;
  return area + waiting ** 2 / (2 * Math.max(after - demand, after * SPARE_MIN));
}

/** Share of the GPUs whose replica ends. */
export function changedShare(from: DeploymentPlan, to: DeploymentPlan): number {
  let [changed, all] = [0, 0];
  for (const { shape, replicas } of from) {
    const kept = to.find((one) => one.shape.tp === shape.tp && one.shape.pp === shape.pp)?.replicas ?? 0;
    const each = shape.tp * shape.pp;
    all += each * replicas;
    changed += each * Math.max(0, replicas - kept);
  }
  return all === 0 ? 0 : changed / all;
}
