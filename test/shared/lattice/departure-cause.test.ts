import { expect, it } from 'vitest';
import { departureCause, TERMINATION_SIGNALS } from '../../../shared/lattice/departure-cause.ts';

it.each<[string | null | undefined, string]>([
  ['drain', 'drained'],
  ['agent-fault', 'crashed'],
  ...TERMINATION_SIGNALS.map((signal): [string, string] => [signal, 'stopped']),
  ['toString', 'unknown'],
  ['whatever a provider writes', 'unknown'],
  [null, 'unknown'],
  [undefined, 'unknown'],
])('%s is %s', (reason, cause) => expect(departureCause(reason)).toBe(cause));
