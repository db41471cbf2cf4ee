import { expect, it } from 'vitest';
import { completionWindowText, readCompletionWindow } from '../../../shared/batch/completion-window.ts';

it.each([
  ['1h', 3_600],
  ['24h', 86_400],
  ['1d', 86_400],
  ['7d', 604_800],
  ['30d', 2_592_000],
  ['720h', 2_592_000],
])('a window of %s has %i seconds, and is shown as one that can be read', (text, seconds) => {
  expect(readCompletionWindow(text)).toBe(seconds);
  expect(readCompletionWindow(completionWindowText(seconds))).toBe(seconds);
});

it('a day is shown as OpenAI writes it', () => {
  expect([86_400, 604_800, 3_600].map(completionWindowText)).toEqual(['24h', '7d', '1h']);
});

it.each(['0h', '31d', '721h', '30m', '1.5d', '-1d', '24H', ' 24h', '24h\n', '999999d', '', undefined, 24, null])(
  '%j is not a window',
  (text) => expect(readCompletionWindow(text)).toBeUndefined(),
);
