/** The state machine of an agent's life: the order of its phases, and the end of its waits. */
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  ALIVE,
  type EndingAction,
  type EndingEvent,
  type EndingState,
  type EndingView,
  type EndReason,
} from '../../../../agent/life/ending/ending-state.ts';
import { nextDeadline, stepEnding } from '../../../../agent/life/ending/ending-transitions.ts';

const DRAIN: EndReason = { kind: 'drain', cause: 'request', why: 'a test' };
const FATAL: EndReason = { kind: 'fatal', sign: 'CUDA error' };
const EXITED: EndReason = { kind: 'engine', exit: { kind: 'error', message: 'gone' } };
const REFUSED: EndReason = { kind: 'refused', refusal: { status: 403, message: 'no' } };

/** A machine with a clock, which records its actions. */
class Played {
  state: EndingState = ALIVE;
  now = 0;
  readonly actions: EndingAction[] = [];
  readonly #registers: boolean;

  constructor(registers = true) {
    this.#registers = registers;
  }

  send(...events: EndingEvent[]): this {
    for (const event of events) {
      const { state, actions } = stepEnding(this.state, event, this.#view());
      this.state = state;
      this.actions.push(...actions);
    }
    return this;
  }

  after(ms: number): this {
    this.now += ms;
    return this.send({ kind: 'time' });
  }

  #view(): EndingView {
    const plan = { drainMs: 20_000, graceMs: 10_000 };
    return { now: this.now, registers: this.#registers, inFlight: 0, plan: () => plan, drainReason: () => 'drain' };
  }

  /** The kinds of its actions since the last call, without log lines. */
  did(): string[] {
    return this.actions.splice(0).flatMap(({ kind }) => (kind === 'log' ? [] : [kind]));
  }
}

const done = (...waits: Extract<EndingEvent, { kind: 'done' }>['wait'][]): EndingEvent[] =>
  waits.map((wait) => ({ kind: 'done', wait }));
const end = (reason: EndReason): EndingEvent => ({ kind: 'end', reason });
const JOINED: EndingEvent = { kind: 'joined' };
const LEFT: EndingEvent = { kind: 'left', acknowledged: true };

it('a drain waits for requests and lines, uploads the log, publishes LEFT, and ends the engine last', () => {
  const life = new Played().send(JOINED, end(DRAIN));
  expect(life.did()).toEqual(['watch-engine', 'down', 'drain', 'drain-lines']);
  expect(life.send(...done('requests')).did()).toEqual([]);
  expect(life.send(...done('lines')).did()).toEqual(['return-lines', 'upload-log']);
  expect(life.send(...done('log')).did()).toEqual(['leave']);
  expect(life.send(LEFT).did()).toEqual(['stop-engine']);
  expect(life.send(...done('stopped')).did()).toEqual(['ended']);
});

it('the last will is dismissed only after a gateway acknowledged LEFT', () => {
  const leaving = () => new Played().send(JOINED, end(DRAIN), ...done('requests', 'lines', 'log'));
  expect(leaving().state.needsLastWill).toBe(true);
  expect(leaving().send({ kind: 'left', acknowledged: false }).state.needsLastWill).toBe(true);
  expect(leaving().send(LEFT).state.needsLastWill).toBe(false);
});

it('a drain leaves at its deadline, or if the engine exits', () => {
  const late = new Played().send(JOINED, end(DRAIN));
  late.did();
  expect(late.after(19_999).did()).toEqual([]);
  expect(late.after(1).did()).toEqual(['return-lines', 'upload-log']);
  const gone = new Played().send(JOINED, end(DRAIN), ...done('engine'));
  expect(gone.did()).toContain('upload-log');
});

it('a broken engine returns its requests first, and is killed after LEFT', () => {
  const life = new Played().send(JOINED, end(FATAL));
  expect(life.did()).toEqual(['down', 'return-requests', 'watch-engine']);
  expect(
    life
      .send(...done('returned'))
      .after(500)
      .did(),
  ).toEqual(['repeat-output', 'upload-log', 'stop-engine']);
  life.send(...done('log'), LEFT);
  expect(life.actions.at(-1)).toEqual({ kind: 'stop-engine', graceMs: 0 });
});

it('the agent of another rank keeps its part of the engine until the deadline', () => {
  const life = new Played(false).send(JOINED, end(DRAIN), ...done('requests', 'lines'));
  expect(life.did()).toEqual(['watch-engine']);
  expect(life.after(20_000).did()).toEqual(['leave']);
});

it('the first reason counts, and nothing begins before the admission has ended', () => {
  const life = new Played().send(end(REFUSED), end(FATAL));
  expect(life.did()).toEqual([]);
  expect(life.send(JOINED).did()).toContain('drain');
});

it('a signal during a drain without haste shortens it; a second one leaves LEFT a quarter of a second', () => {
  const life = new Played().send(JOINED, end(DRAIN)).after(15_000);
  life.send({ kind: 'signal', signal: 'SIGTERM', at: 15_000 });
  life.did();
  expect(nextDeadline(life.state)).toBe(20_000);
  life.send({ kind: 'signal', signal: 'SIGTERM', at: 17_000 });
  expect(life.did()).toEqual(['hurry', 'return-lines']);
  expect(life.send(...done('lines')).did()).toEqual(['leave', 'stop-engine']);
  expect(life.state.needsLastWill).toBe(true);
  expect(life.after(249).did()).toEqual([]);
  expect(life.after(1).did()).toEqual(['stop-engine']);
  expect(life.send(...done('stopped')).actions.at(-1)).toEqual({ kind: 'ended', code: 143 });
  // LEFT was acknowledged late.
  expect(life.send(LEFT).state.needsLastWill).toBe(false);
});

it('ends exactly once, in whatever order events arrive', () => {
  const events: EndingEvent[] = [
    ...[DRAIN, FATAL, EXITED, REFUSED].map(end),
    ...done('requests', 'lines', 'engine', 'returned', 'log', 'stopped'),
    { kind: 'fate', fate: undefined },
    { kind: 'fate', fate: 'preempted' },
    { kind: 'warning', warning: { plan: { drainMs: 60_000, graceMs: 5_000 }, reason: 'time-limit' } },
    { kind: 'signal', signal: 'SIGTERM', at: 0 },
    { kind: 'signal', signal: 'SIGINT', at: 5_000 },
    JOINED,
    LEFT,
  ];
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.constantFrom(...events), fc.nat(2_000)), { maxLength: 40 }),
      fc.boolean(),
      (all, registers) => {
        const life = new Played(registers);
        for (const [event, ms] of all) life.after(ms).send(event);
        life.send(end(DRAIN), JOINED);
        // The waits without a deadline always complete.
        for (let round = 0; round < 8; round++)
          life.after(120_000).send(...done('returned'), { kind: 'fate', fate: undefined }, LEFT, ...done('stopped'));
        expect(life.did().filter((kind) => kind === 'ended')).toHaveLength(1);
        expect(nextDeadline(life.state)).toBe(Number.POSITIVE_INFINITY);
      },
    ),
  );
});
