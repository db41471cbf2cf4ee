import { expect, test } from 'vitest';
import { kindShares } from '../../../scheduler/follow/shares.ts';
import { demand, KINDS, problem } from './support.ts';

test('nodes beyond what a gateway takes rules for get as much as others on average', () => {
  const steps = [[100, 100]];
  const serving = new Map([0, 1].map((option) => [option, Array.from({ length: 300 }, (_, n) => `${option} ${n}`)]));
  const kinds = KINDS.map((name) => ({ name, input: 1, output: 1, share: 0.5 }));
  const { weights } = kindShares(problem(steps), demand(steps), kinds, serving, steps[0] ?? []) ?? { weights: [] };
  expect(weights).toHaveLength(500);
  const rest = weights.at(-1);
  expect(rest).toEqual({ weight: 0.0017 });
});
