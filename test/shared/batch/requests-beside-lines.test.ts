/** Requests at an engine that lines keep full, in simulated time: how long they wait for a slot. */
import { expect, it } from 'vitest';
import { LineConcurrency } from '../../../shared/batch/line-concurrency.ts';

const SLOTS = 16;
const SERVICE_MS = 50;
const RUN_MS = 60_000;
/** Requests start at this time, when the window has grown. */
const FROM_MS = 20_000;

/**
 * An engine that runs `SLOTS` concurrently and queues the rest in the order of arrival. There are always lines to run.
 */
class Engine {
  now = 0;
  lines = 0;
  requests = 0;
  linesDone = 0;
  readonly waits: number[] = [];
  readonly #events: { at: number; run(): void }[] = [];
  readonly #queue: (() => void)[] = [];
  #working = 0;

  at(ms: number, run: () => void): void {
    const behind = this.#events.findIndex(({ at }) => at > ms);
    this.#events.splice(behind < 0 ? this.#events.length : behind, 0, { at: ms, run });
  }

  submit(started: (waitedMs: number) => void, done: () => void): void {
    const cameAt = this.now;
    const begin = () => {
      this.#working += 1;
      started(this.now - cameAt);
      this.at(this.now + SERVICE_MS, () => {
        this.#working -= 1;
        this.#queue.shift()?.();
        done();
      });
    };
    if (this.#working < SLOTS) begin();
    else this.#queue.push(begin);
  }

  run(untilMs: number): void {
    while ((this.#events[0]?.at ?? Number.POSITIVE_INFINITY) <= untilMs) {
      const next = this.#events.shift();
      this.now = next?.at ?? this.now;
      next?.run();
    }
  }
}

function p95Beside(perSecond: number) {
  const engine = new Engine();
  const window = new LineConcurrency({ slots: () => SLOTS, reserve: 0.1, firstTokenLimitMs: 2_000 });
  let seed = 1;
  const random = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  const pump = () => {
    while (engine.lines < window.limitWith(engine.requests)) {
      engine.lines += 1;
      const ended = () => {
        engine.lines -= 1;
        engine.linesDone += 1;
        pump();
      };
      engine.submit(() => {}, ended);
    }
  };
  let before = 0;
  const judge = () => {
    const linesPerS = engine.linesDone - before;
    before = engine.linesDone;
    window.read({ running: SLOTS, waiting: 0, linesPerS, refused: 0, interactive: engine.requests });
    pump();
    engine.at(engine.now + 1_000, judge);
  };
  const arrive = () => {
    engine.requests += 1;
    engine.submit(
      (waitedMs) => engine.waits.push(waitedMs),
      () => {
        engine.requests -= 1;
        pump();
      },
    );
    engine.at(engine.now - (Math.log(1 - random()) / perSecond) * 1_000, arrive);
  };
  engine.at(0, judge);
  engine.at(FROM_MS, arrive);
  engine.run(FROM_MS);
  const alone = engine.linesDone;
  engine.run(RUN_MS);
  const sorted = [...engine.waits].sort((a, b) => a - b);
  return {
    requests: sorted.length,
    waitMs: sorted[Math.floor(sorted.length * 0.95)] ?? Number.NaN,
    linesPerS: (engine.linesDone - alone) / ((RUN_MS - FROM_MS) / 1_000),
  };
}

it.each([10, 30, 100])('at %d requests a second p95 of the wait is below a fifth of what one takes', (perSecond) => {
  const { requests, waitMs, linesPerS } = p95Beside(perSecond);
  expect(requests).toBeGreaterThan(30 * perSecond);
  expect(waitMs).toBeLessThanOrEqual(SERVICE_MS / 5);
  // The engine has capacity for 320 a second, a tenth of it in reserve: lines use what requests leave.
  expect(linesPerS).toBeGreaterThan(0.85 * (320 - 32 - perSecond));
});
