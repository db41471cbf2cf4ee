import { expect, it } from 'vitest';
import { SilenceDetector } from '../../../shared/resume/silence-detector.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';

/** Timers that the test fires. */
class Timers {
  readonly #rings: (() => void)[] = [];
  set = 0;

  readonly after = (_ms: number, ring: () => void) => {
    this.set++;
    this.#rings.push(ring);
    return () => void this.#rings.splice(this.#rings.indexOf(ring), 1);
  };

  get pending(): number {
    return this.#rings.length;
  }

  ring(): void {
    for (const ring of this.#rings.splice(0)) ring();
  }
}

const never = new Promise<void>(() => {});

it('a wait that outlasts a whole interval is a silence, and so is the next one', async () => {
  const timers = new Timers();
  const silence = new SilenceDetector(4_000, timers.after);
  for (let n = 0; n < 2; n++) {
    const silent = silence.outlasts(never);
    timers.ring();
    timers.ring();
    expect(await silent).toBe(true);
  }
});

it('a stream whose chunks come in time is not silent, and sets one timer per interval', async () => {
  const timers = new Timers();
  const silence = new SilenceDetector(4_000, timers.after);
  for (let n = 0; n < 1_000; n++) {
    expect(await silence.outlasts(Promise.resolve())).toBe(false);
    if (n % 100 === 99) timers.ring();
  }
  expect(timers.set).toBe(10);
});

it('work that fails is no silence', async () => {
  const silence = new SilenceDetector(4_000, new Timers().after);
  expect(await silence.outlasts(Promise.reject(new Error('broken')))).toBe(false);
});

it('a stream that is over leaves no timer behind', async () => {
  const timers = new Timers();
  const silence = new SilenceDetector(4_000, timers.after);
  neverRejects(silence.outlasts(never));
  silence.end();
  expect(timers.pending).toBe(0);
});
