/** How many lines a call of a function gets. */
import { expect, it } from 'vitest';
import { CallSize } from '../../../agent/batch/functions/call-size.ts';
import { LeasedLines } from '../../../agent/batch/functions/leased-lines.ts';

/** Lines of a function with batches of 64, of which one line took `lineMs`; undefined: none has ended yet. */
function leased(lineMs: number | undefined) {
  const calls = new CallSize(64);
  if (lineMs !== undefined) calls.took(1, lineMs);
  const lines = Array.from({ length: 100 }, (_, line) => ({ line, body: '{}' }));
  return new LeasedLines({ calls, lines } as unknown as ConstructorParameters<typeof LeasedLines>[0]);
}

it.each([
  ['no end of the job is known', 1_000, Number.POSITIVE_INFINITY, 64],
  ['the job ends after all lines of a call', 1_000, 65_000, 64],
  ['the job ends earlier', 1_000, 10_500, 10],
  ['no call has ended, so that the time of a line is unknown', undefined, 5_000, 64],
])('if %s, a call with lines of %s ms has %s ms and %i lines', (_, lineMs, endsInMs, size) => {
  const lines = leased(lineMs);
  expect(lines.begin(0, endsInMs)).toHaveLength(size);
  expect(lines.waiting).toHaveLength(100 - size);
});

it.each([
  [1_000, 999, 0],
  [1_000, -5_000, -5],
  [undefined, -5_000, Number.POSITIVE_INFINITY],
])('lines of %s ms: %i ms are enough for %s', (lineMs, ms, count) => {
  expect(leased(lineMs).fitting(ms)).toBe(count);
});

it('idle nodes get the lines that the next call does not need, and none that end soon here', () => {
  const shared = (lineMs: number | undefined, keep: number) => leased(lineMs).share(keep, 0);
  const from = (first: number) => Array.from({ length: 100 - first }, (_, i) => ({ line: first + i, body: '{}' }));
  expect(shared(undefined, 1)).toEqual(from(64));
  expect(shared(1_000, 80)).toEqual(from(80));
  expect(shared(10, 1)).toEqual([]);
});
