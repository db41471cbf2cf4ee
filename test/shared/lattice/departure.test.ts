import { expect, it } from 'vitest';
import { departureCause } from '../../../shared/lattice/departure.ts';

it.each([
  ['drain', 'drained'],
  ['preempted', 'preempted'],
  ['engine-broken', 'crashed'],
  ['SIGTERM', 'stopped'],
  ['operator', 'evicted'],
  ['silent', 'unknown'],
  ['toString', 'unknown'],
  ['whatever a provider writes', 'unknown'],
  [null, 'unknown'],
  [undefined, 'unknown'],
])('%s is %s', (reason, cause) => expect(departureCause(reason)).toBe(cause));
