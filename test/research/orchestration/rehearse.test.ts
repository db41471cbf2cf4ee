/** The effect of a change on the running requests and on the next ones. */
import { describe, expect, it } from 'vitest';
import type { DeploymentPlan } from '../../../research/orchestration/deployment-plan.ts';
import type { RunningRequest } from '../../../research/orchestration/orchestrator.ts';
import { place } from '../../../research/orchestration/placement.ts';
import { forecastRequests, simulatePlan, withRunningRequests } from '../../../research/orchestration/rehearse.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { SMALL } from './support.ts';

const PAIRS: DeploymentPlan = [{ shape: { tp: 2, pp: 1 }, replicas: 4 }];
const PIPES: DeploymentPlan = [{ shape: { tp: 1, pp: 4 }, replicas: 2 }];
const start = { plan: PAIRS, running: place(PAIRS, [], SMALL.site).replicas };
const coming = forecastRequests(SMALL, [4, 4], 60, 1);

const waiting = (count: number, ageS = 5): RunningRequest[] =>
  Array.from({ length: count }, () => ({ kind: 1, ageS, tokens: 200, answered: 0, computed: false }));
const answering = (count: number): RunningRequest[] =>
  waiting(count).map((one) => ({ ...one, tokens: 300, answered: 100, computed: true }));

const seconds = (begun: readonly RunningRequest[], plan = PAIRS, darkS = 0) =>
  simulatePlan(
    SMALL,
    DEFAULT_LIMITS,
    { plan, dispatch: { kind: 'least-loaded' }, darkS },
    withRunningRequests(SMALL, begun, coming, 1),
    { start },
  );

describe('a rehearsal', () => {
  it('of what runs, with nothing under way, is one that begins empty', () => {
    const empty = simulatePlan(SMALL, DEFAULT_LIMITS, { plan: PAIRS, dispatch: { kind: 'least-loaded' } }, coming);
    expect(seconds([])).toBe(empty);
  });

  it('counts what waits, from when it came', () => {
    expect(seconds(waiting(400))).toBeGreaterThan(seconds([]));
    expect(seconds(waiting(400, 60))).toBeGreaterThan(seconds(waiting(400, 5)));
  });

  it('has less left to do of answers that have begun', () => {
    expect(seconds(answering(200))).toBeLessThan(seconds(waiting(200)));
  });

  it('counts the dark seconds of a switch, for more requests where more are under way', () => {
    const loss = (begun: readonly RunningRequest[]) =>
      (seconds(begun, PIPES, 20) ** 4 - seconds(begun, PIPES, 0) ** 4) * (begun.length + coming.requests.count);
    expect(loss([])).toBeGreaterThan(0);
    expect(loss(waiting(400))).toBeGreaterThan(2 * loss([]));
    expect(loss(answering(400))).toBeGreaterThan(2 * loss([]));
  });

  it('ends early where it is sure to be above a limit, and only there', () => {
    const whole = seconds(waiting(100));
    const upTo = (mostS: number) =>
      simulatePlan(
        SMALL,
        DEFAULT_LIMITS,
        { plan: PAIRS, dispatch: { kind: 'least-loaded' } },
        withRunningRequests(SMALL, waiting(100), coming, 1),
        { start, mostS },
      );
    expect(upTo(whole * 1.0001)).toBe(whole);
    expect(upTo(whole * 0.5)).toBe(Number.POSITIVE_INFINITY);
  });
});
