import { expect, it } from 'vitest';
import { drainReason } from '../../../agent/life/drain-plan.ts';

it('why a node goes is told apart: a drain, the time limit, a signal while the job still had time', () => {
  expect(drainReason('request', 'otela-agent drain', undefined)).toBe('drain');
  expect(drainReason('job-end', 'the job ends in 60 s', 60_000)).toBe('time-limit');
  expect(drainReason('signal', 'SIGTERM', 1_000)).toBe('time-limit');
  expect(drainReason('signal', 'SIGTERM', -5_000)).toBe('time-limit');
  expect(drainReason('signal', 'SIGTERM', 3_600_000)).toBe('SIGTERM');
  expect(drainReason('signal', 'SIGINT', undefined)).toBe('SIGINT');
  expect(drainReason('warning', 'SIGUSR1', 120_000)).toBe('time-limit');
  expect(drainReason('warning', 'SIGUSR1', 7_200_000)).toBe('SIGUSR1');
});
