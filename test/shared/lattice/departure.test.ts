import { expect, it } from 'vitest';
import { departureCause } from '../../../shared/lattice/departure.ts';

it.each([
  ['drain', 'drained'],
  ['toString', 'unknown'],
  ['whatever a provider writes', 'unknown'],
  [null, 'unknown'],
  [undefined, 'unknown'],
])('%s is %s', (reason, cause) => expect(departureCause(reason)).toBe(cause));
