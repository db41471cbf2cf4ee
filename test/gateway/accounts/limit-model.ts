/** Histories of one project's requests, in which the limiter is compared with limit-reference.ts after each step. */
import fc from 'fast-check';
import type { MeterTime } from '../../../gateway/accounts/limits/limit-meter.ts';
import { Limiter, type LimiterStore, type Reservation } from '../../../gateway/accounts/limits/limiter.ts';
import type { Limits } from '../../../gateway/settings/limits-schema.ts';
import { LimitReference, MINUTE_MS, type Request } from './limit-reference.ts';

/** One slot of the windows: at its multiples they are exact. */
export const TICK_MS = 250;
/** Ten minutes before a month's end, so that most histories cross it. */
export const START = Date.parse('2026-11-30T23:50:00Z');

const monthOf = (ms: number) => new Date(ms).toISOString().slice(0, 7);

/** What objects keep on disk, with a copy of each state as JSON: anything that JSON does not preserve is lost. */
export class MemoryStore implements LimiterStore {
  readonly months = new Map<string, number>();
  readonly #minutes = new Map<string, unknown>();
  readonly #estimators = new Map<string, unknown>();
  readonly #holds = new Map<string, { state: unknown; savedAt: number }>();
  /** Milliseconds; `requests` measures ages by it. */
  now = 0;

  minute(id: string): unknown {
    return this.#minutes.get(id);
  }

  estimator(id: string): unknown {
    return this.#estimators.get(id);
  }

  ledger(id: string) {
    return {
      used: (month: string) => this.months.get(`${id} ${month}`) ?? 0,
      write: (month: string, used: number) => void this.months.set(`${id} ${month}`, used),
    };
  }

  requests() {
    return [...this.#holds].map(([name, { state, savedAt }]) => ({ name, state, savedMsAgo: this.now - savedAt }));
  }

  save(limiter: Limiter, now: MeterTime): void {
    const copy = (state: object): unknown => JSON.parse(JSON.stringify(state));
    for (const { id, minute, estimator } of limiter.states(now)) {
      this.#estimators.set(id, copy(estimator));
      if (minute === undefined) this.#minutes.delete(id);
      else this.#minutes.set(id, copy(minute));
    }
    for (const { name, state } of limiter.changedRequests(now)) {
      if (state === undefined) this.#holds.delete(name);
      else this.#holds.set(name, { state: copy(state), savedAt: now.ms });
    }
  }
}

const limit = (max: number) => fc.option(fc.integer({ min: 1, max }), { nil: undefined });
const limitsOf: fc.Arbitrary<Limits> = fc.record({
  requests_per_minute: limit(10),
  tokens_per_minute: limit(3_000),
  concurrent_requests: limit(6),
  tokens_per_month: limit(10_000),
});

const use = { which: fc.nat(), attempt: fc.integer({ min: 1, max: 3 }), prompt: fc.nat(500), completion: fc.nat(900) };
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('ask' as const),
      key: fc.constantFrom('a', 'b'),
      bodyBytes: fc.nat(2_000),
      maxTokens: fc.option(fc.integer({ min: 1, max: 1_000 }), { nil: undefined }),
      counts: fc.constantFrom('answer' as const, 'answer' as const, 'nothing' as const),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constantFrom('correct' as const, 'settle' as const), ...use, whole: fc.boolean() }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('recount' as const), ...use }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('release' as const), which: fc.nat(), attempts: fc.nat(3) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constantFrom('batch' as const, 'late' as const),
      key: fc.constantFrom('a', 'b'),
      tokens: fc.nat(800),
      ageMs: fc.constantFrom(0, 10_000, 2 * MINUTE_MS, 86_400_000),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('evict' as const, 'restart' as const) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('pass' as const), ticks: fc.nat(80) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('pass' as const), ticks: fc.nat(4_000) }) },
  // The machine's clock is set: only the month follows it.
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('clock' as const),
      wrongMs: fc.integer({ min: -1_800_000, max: 1_800_000 }),
    }),
  },
);
export type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** One history from its start. */
class History {
  readonly #limits: { key: Limits; project: Limits };
  readonly #store = new MemoryStore();
  readonly #reference: LimitReference;
  readonly #open: Request[] = [];
  #limiter: Limiter;
  #ms = START;
  #wrongMs = 0;
  #names = 0;

  constructor(key: Limits, project: Limits) {
    this.#limits = { key, project };
    this.#reference = new LimitReference([key, project]);
    this.#limiter = new Limiter(this.#store, this.#now);
  }

  get #now(): MeterTime {
    return { ms: this.#ms, month: monthOf(this.#ms + this.#wrongMs) };
  }

  /** @throws Error if limiter and list disagree */
  run(one: Step): void {
    switch (one.kind) {
      case 'pass':
        this.#ms += one.ticks * TICK_MS;
        return;
      case 'clock':
        this.#wrongMs = one.wrongMs;
        return;
      case 'evict':
      case 'restart':
        return this.#reopen(one.kind === 'restart');
      case 'ask':
        return this.#ask(one);
      case 'batch':
      case 'late':
        return this.#settleUnknown(one);
      default:
        return this.#tell(one);
    }
  }

  #ask({ key: keyId, bodyBytes, maxTokens, counts }: Extract<Step, { kind: 'ask' }>): void {
    const asked: Reservation = { name: `r${this.#names++}`, keyId, ...this.#limits, bodyBytes, maxTokens, counts };
    const expected = this.#reference.fits(asked, this.#now);
    const { granted } = this.#limiter.reserve(asked, this.#now);
    if (granted !== expected) throw new Error(`${asked.name} was ${granted ? 'granted' : 'refused'}`);
    if (granted) this.#open.push(this.#reference.take(asked, this.#now));
  }

  #reopen(isOtherProcess: boolean): void {
    this.#store.save(this.#limiter, this.#now);
    this.#store.now = this.#ms;
    this.#limiter = new Limiter(this.#store, this.#now);
    this.#reference.reopened();
    if (!isOtherProcess) return;
    this.#limiter.interrupt(this.#now);
    for (const request of this.#reference.requests)
      if (!request.gone) Object.assign(request, { running: false, since: request.since ?? this.#ms });
  }

  /** A line of a batch, or a record of a request that no object holds. */
  #settleUnknown({ kind, key: keyId, tokens, ageMs }: Extract<Step, { kind: 'batch' | 'late' }>): void {
    const month = monthOf(this.#ms + this.#wrongMs - ageMs);
    const isReserved = kind === 'late';
    const use = { name: `u${this.#names++}`, attempt: 1, prompt: 0, completion: tokens, isComplete: true };
    this.#limiter.settle({ ...use, keyId, gpuMs: 0, isReserved, ageMs, month }, this.#now);
    this.#reference.book(keyId, tokens, month);
    if (isReserved && ageMs < MINUTE_MS) this.#reference.addTokens(keyId, tokens, this.#ms - ageMs, this.#ms);
  }

  #tell(one: Extract<Step, { which: number }>): void {
    const request = this.#open[one.which % Math.max(1, this.#open.length)];
    if (request === undefined) return;
    if (one.kind === 'release') return this.#release(request, one.attempts);
    const { attempt, prompt, completion } = one;
    const { name, keyId } = request;
    const known = request.uses.get(attempt);
    const tokens = prompt + completion;
    if (one.kind === 'correct') {
      if (known !== undefined) return; // its node reports it once
      this.#limiter.correct({ name, attempt, prompt, completion, isComplete: one.whole }, this.#now);
      const use = { attempt, prompt, completion, isComplete: one.whole, isBooked: false };
      this.#reference.correct(request, use, this.#ms);
      return;
    }
    // An attempt is settled once, and again only if that was an estimate.
    const booked = known?.booked ?? 0;
    if (one.kind === 'settle' && (booked > 0 || request.gone)) return;
    if (one.kind === 'recount' && booked === 0) return;
    const before = one.kind === 'recount' ? { prompt: booked, completion: 0 } : undefined;
    const isComplete = one.kind === 'settle' && one.whole;
    const use = { name, attempt, prompt, completion, isComplete, ...(before && { before }) };
    const { month } = this.#now;
    const wasGone = request.gone;
    this.#limiter.settle({ ...use, keyId, gpuMs: 0, isReserved: true, ageMs: 0, month }, this.#now);
    this.#reference.book(keyId, tokens - booked, month);
    if (wasGone) {
      if (tokens > booked) this.#reference.addTokens(keyId, tokens - booked, this.#ms, this.#ms);
      request.uses.set(attempt, { tokens, booked: tokens });
    } else this.#reference.correct(request, { attempt, prompt, completion, isComplete, isBooked: true }, this.#ms);
  }

  #release(request: Request, attempts: number): void {
    this.#limiter.release(request.name, attempts, this.#now);
    if (request.gone) return;
    request.running = false;
    if (attempts === 0) return this.#reference.forget(request, this.#ms);
    this.#reference.change(request, this.#ms, () => Object.assign(request, { expected: attempts, since: this.#ms }));
  }
}

/** For any limits and any steps, the limiter and the list agree after each step. `seen` is told each history. */
export function agrees(seen: (steps: readonly Step[]) => void = () => {}) {
  return fc.property(limitsOf, limitsOf, fc.array(step, { maxLength: 120, size: 'max' }), (key, project, steps) => {
    seen(steps);
    const history = new History(key, project);
    for (const one of steps) history.run(one);
  });
}
