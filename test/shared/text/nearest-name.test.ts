import { expect, test } from 'vitest';
import { nearestName, nearestNames } from '../../../shared/text/nearest-name.ts';
import { costBeside, readOnce } from '../../support/cost.ts';

test.each([
  ['kyes', ['keys', 'users'], 'keys'],
  ['stat', ['start', 'status'], 'status'],
  ['OTELA_GATEWY', ['OTELA_TOKEN', 'OTELA_GATEWAY'], 'OTELA_GATEWAY'],
  ['x', ['start', 'status'], undefined],
  ['weather', ['start', 'status'], undefined],
  ['anything', [], undefined],
])('%j among %j is %j', (name, known, meant) => {
  expect(nearestName(name, known)).toBe(meant);
});

test('names are ranked, the nearest first, however far they are', () => {
  expect(nearestNames('A200-80', ['H100-80', 'A100-80', 'MI300X'], 2)).toEqual(['A100-80', 'H100-80']);
  expect(nearestNames('llama-8b', ['meta/Llama-8B-Instruct', 'llama-9b'])).toEqual([
    'meta/Llama-8B-Instruct',
    'llama-9b',
  ]);
});

test('a name of any length is answered without a comparison of its letters', () => {
  const long = 'x'.repeat(1_000_000);
  const names = Array.from({ length: 100 }, (_, n) => `name-${n}`);
  // One comparison would take as many steps as the long name has letters, for each letter of each name.
  const ratio = costBeside(
    () => nearestName(long, names),
    () => readOnce(Buffer.from(long)),
  );
  expect(ratio).toBeLessThan(5);
});
