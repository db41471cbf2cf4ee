/** The table of unique names: its probabilities follow from its bits, and the files that make the names exist. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../support/where.ts';

const ROW = /^\| (?<name>[^|]+?) +\| `(?<file>[^`]+)` +\| (?<bits>\d+) +\| (?<chance>[\de.-]+) +\|/gm;
const NAMES = 1e9;
const page = readFileSync(join(ROOT, 'docs/design/objects.md'), 'utf8');
const rows = [...page.matchAll(ROW)].map(({ groups }) => ({ ...groups }));

test('the table has its rows', () => {
  expect(rows.length).toBeGreaterThanOrEqual(10);
});

test.each(rows)('$name: the chance is that of $bits bits', ({ file = '', bits, chance }) => {
  expect(existsSync(join(ROOT, file))).toBe(true);
  // Birthday problem: one minus e to the power of minus n squared over twice the number of possible names.
  const expected = -Math.expm1(-(NAMES ** 2) / 2 ** (Number(bits) + 1));
  expect(Number(chance)).toBe(Number(expected.toExponential(0)));
});
