import { expect, it } from 'vitest';
import { readSignal } from '../../../agent/life/ending-signals.ts';

it('a Ctrl-C that npm passes on behind the terminal’s is one; a person’s second ends at once', () => {
  expect(readSignal('SIGINT', undefined, 1_000).kind).toBe('drain');
  expect(readSignal('SIGINT', 1_000, 1_050).kind).toBe('echo');
  expect(readSignal('SIGINT', 1_000, 1_300).kind).toBe('force');
});
