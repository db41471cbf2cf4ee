import { expect, it } from 'vitest';
import { PendingReplies } from '../../../shared/attempts/pending-replies.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';

/** Timers that the test fires. */
class Timers {
  readonly rings = new Set<() => void>();
  readonly waits: number[] = [];
  at = 0;

  now = (): number => this.at;

  after = (ms: number, ring: () => void): (() => void) => {
    this.waits.push(ms);
    this.rings.add(ring);
    return () => this.rings.delete(ring);
  };
}

function open(max = 2) {
  const [timers, asked] = [new Timers(), [] as number[]];
  const questions = new PendingReplies<string>({
    max,
    wait: { leastMs: 400, mostMs: 4_000 },
    late: 'late',
    unknown: 'unknown',
    patience: timers,
  });
  return { timers, asked, questions, ask: () => questions.ask((number) => asked.push(number)) };
}

it('each call gets its own reply, in any order, and only one', async () => {
  const { timers, asked, questions, ask } = open();
  const [one, two] = [ask(), ask()];
  expect(asked).toEqual([1, 2]);
  questions.answered(2, 'second');
  questions.answered(1, 'first');
  questions.answered(1, 'again');
  expect(await Promise.all([one, two])).toEqual(['first', 'second']);
  expect(timers.rings.size).toBe(0);
});

it('what is answered too late is answered by the time, and makes room', async () => {
  const { timers, asked, questions, ask } = open(1);
  const one = ask();
  for (const ring of timers.rings) ring();
  expect(await one).toBe('late');
  questions.answered(1, 'first');
  const two = ask();
  questions.answered(2, 'second');
  expect(await two).toBe('second');
  expect(asked).toEqual([1, 2]);
});

it('one too many is not asked, and what a lost socket took along is not known', async () => {
  const { timers, asked, questions, ask } = open(2);
  const all = [ask(), ask(), ask()];
  questions.abandon();
  expect(await Promise.all(all)).toEqual(['unknown', 'unknown', 'unknown']);
  expect(asked).toEqual([1, 2]);
  expect(timers.rings.size).toBe(0);
});

it('a peer that took long is waited for longer, and one that said nothing twice as long', async () => {
  const { timers, questions, ask } = open();
  const one = ask();
  timers.at = 390;
  questions.answered(1, 'slow');
  await one;
  const two = ask();
  for (const ring of timers.rings) ring();
  await two;
  neverRejects(ask());
  expect(timers.waits).toEqual([400, 1_170, 2_340]);
});
