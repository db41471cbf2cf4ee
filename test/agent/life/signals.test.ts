import { expect, it } from 'vitest';
import { SignalReader } from '../../../agent/life/signals.ts';

it('a Ctrl-C that npm passes on behind the terminal’s is one; a person’s second ends at once', () => {
  let now = 1_000;
  const reader = new SignalReader(() => now);
  expect(reader.read('SIGINT').kind).toBe('drain');
  now += 50;
  expect(reader.read('SIGINT').kind).toBe('echo');
  now += 250;
  expect(reader.read('SIGINT').kind).toBe('force');
});
