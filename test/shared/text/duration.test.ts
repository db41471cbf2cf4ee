import { expect, it } from 'vitest';
import { durationMs } from '../../../shared/text/duration.ts';

it.each([
  ['0', 0],
  ['500ms', 500],
  ['90s', 90_000],
  ['1h30m', 5_400_000],
  ['1.5h', 5_400_000],
  ['30d', 2_592_000_000],
  ['90', undefined],
  ['', undefined],
  ['1h 30m', undefined],
  ['-5s', undefined],
  ['5S', undefined],
  [`${'9'.repeat(40)}s`, undefined],
])('reads %j as %s ms', (text, ms) => {
  expect(durationMs(text)).toBe(ms);
});
