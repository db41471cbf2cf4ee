/**
 * Counts the requests of one project and its keys, or of one key, against their limits. Pure: the caller hands in times, stored counts
 * and waiting requests, so a test drives it in virtual time.
 *
 * A request reserves an estimate. `correct` puts what it used in the estimate's place, as soon as that is known; `settle` books it
 * for the month, once and for all.
 */
import type { Limits } from './limits.ts';
import { type LimitUse, Meter, type Moment, type MonthLedger, rateLimitHeaders, type Shortage } from './meter.ts';
import { type Forecast, TokenEstimator, type Used } from './token-estimator.ts';

export interface Reservation extends Forecast {
  /** Of the request. */
  name: string;
  keyId: string;
  key: Limits | undefined;
  project: Limits | undefined;
}

export type Verdict = { granted: true; headers: Record<string, string> } | Refusal;

export interface Refusal {
  granted: false;
  scope: 'key' | 'project';
  shortage: Shortage;
  /** Until all limits have room again, if nothing else comes; 0 where only the end of running requests makes room. */
  waitMs: number;
  /** The end of running requests may make room within moments. */
  soon: boolean;
  headers: Record<string, string>;
}

/** What outlives the limiter, by a key's id, or PROJECT. */
export interface LimiterStore {
  minute(id: string): unknown;
  estimator(id: string): unknown;
  ledger(id: string): MonthLedger;
}

export const PROJECT = '';
/** A request that is never released nor settled (its isolate and its node died) counts as running for so long. */
const LEASE_MS = 60 * 60_000;
const RUNNING_MAX = 100_000;
const SWEEP_MS = 60_000;

interface Held extends Forecast {
  keyId: string;
  /** What counts for it now: the estimate, then what it used. */
  tokens: number;
  at: number;
  running: boolean;
  /** Its use is not known yet. */
  estimated: boolean;
}

interface Subject {
  meter: Meter;
  estimator: TokenEstimator;
}

export class Limiter {
  readonly #store: LimiterStore;
  readonly #subjects = new Map<string, Subject>();
  /** Oldest first. */
  readonly #held = new Map<string, Held>();
  #sweptAt = 0;

  constructor(store: LimiterStore) {
    this.#store = store;
  }

  /** Counts a request in, or says why not. */
  reserve(asked: Reservation, now: Moment): Verdict {
    this.#sweep(now);
    const tokens = this.#estimate(asked, now);
    const claim = { tokens, maxTokens: asked.counts === 'answer' ? asked.maxTokens : undefined };
    const [project, key] = this.#both(asked.keyId, now);
    const short = [
      ...project.meter
        .shortages(asked.project, claim, now)
        .map((shortage) => ({ scope: 'project' as const, shortage })),
      ...key.meter.shortages(asked.key, claim, now).map((shortage) => ({ scope: 'key' as const, shortage })),
    ];
    const [worst] = short.sort((a, b) => lasts(b.shortage) - lasts(a.shortage));
    if (worst !== undefined) {
      const waitMs = lasts(worst.shortage);
      const soon = short.every(({ shortage }) => maySoonEnd(shortage));
      return { granted: false, ...worst, waitMs, soon, headers: this.#headers(asked, now) };
    }
    const { name, keyId, counts, bodyBytes, maxTokens } = asked;
    for (const { meter } of [project, key]) meter.take(tokens, now);
    this.#held.set(name, { keyId, counts, bodyBytes, maxTokens, tokens, at: now.ms, running: true, estimated: true });
    const oldest = this.#held.keys().next().value;
    if (this.#held.size > RUNNING_MAX && oldest !== undefined) this.#forget(oldest, now);
    return { granted: true, headers: this.#headers(asked, now) };
  }

  #estimate(asked: Reservation, now: Moment): number {
    const [project, key] = this.#both(asked.keyId, now);
    const tightest = Math.min(...[asked.key, asked.project].flatMap((one) => one?.tokens_per_minute ?? []));
    const { estimator } = !key.estimator.believed && project.estimator.believed ? project : key;
    return estimator.estimate(asked, Number.isFinite(tightest) ? tightest : 0);
  }

  /** What a request used is known, though not yet on disk. */
  correct(name: string, used: Used, now: Moment): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    const both = this.#both(held.keyId, now);
    const after = used.prompt + used.completion;
    const correction = { before: held.tokens, after, estimated: held.estimated, countedAt: held.at };
    for (const { meter } of both) meter.correct(correction, now);
    if (held.estimated) for (const { estimator } of both) estimator.learn(held, used);
    held.tokens = after;
    held.estimated = false;
  }

  /** The request is over; its use comes by itself. Without `used` it never began, and nothing will come. */
  release(name: string, used: boolean, now: Moment): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    if (used) this.#stop(held, now);
    else this.#forget(name, now);
  }

  /** What one attempt at a request used, on its node's word. */
  settle(name: string, keyId: string, used: Used, now: Moment): void {
    this.correct(name, used, now);
    const held = this.#held.get(name);
    this.#held.delete(name);
    if (held !== undefined) this.#stop(held, now);
    const tokens = used.prompt + used.completion;
    for (const { meter } of this.#both(keyId, now)) {
      // Not held: another attempt at the same request was settled before, or the object was evicted meanwhile.
      if (held === undefined) meter.correct({ before: 0, after: tokens, estimated: false, countedAt: now.ms }, now);
      meter.book(tokens, now);
    }
  }

  /** What another gateway booked for a key's month, or with an empty id for the project's. */
  bookElsewhere(id: string, tokens: number, now: Moment): void {
    this.#subject(id, now).meter.bookElsewhere(tokens, now);
  }

  /** What of each limit is used now: of the key's, then of its project's. */
  uses(asked: Pick<Reservation, 'keyId' | 'key' | 'project'>, now: Moment): { key: LimitUse[]; project: LimitUse[] } {
    const [project, key] = this.#both(asked.keyId, now);
    return { key: key.meter.uses(asked.key, now), project: project.meter.uses(asked.project, now) };
  }

  /** What is to be saved of each subject; those that are idle are let go of. */
  *states(now: Moment): Generator<{ id: string; minute: object | undefined; estimator: object }> {
    for (const [id, { meter, estimator }] of this.#subjects) {
      const idle = meter.idle(now);
      if (idle) this.#subjects.delete(id);
      yield { id, minute: idle ? undefined : meter.state(now), estimator: estimator.state() };
    }
  }

  /** Its place is free. */
  #stop(held: Held, now: Moment): void {
    if (!held.running) return;
    held.running = false;
    for (const { meter } of this.#both(held.keyId, now)) meter.release();
  }

  /** As if it had asked for nothing but a request. */
  #forget(name: string, now: Moment): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    this.#stop(held, now);
    this.#held.delete(name);
    const correction = { before: held.tokens, after: 0, estimated: held.estimated, countedAt: held.at };
    for (const { meter } of this.#both(held.keyId, now)) meter.correct(correction, now);
  }

  #headers(asked: Reservation, now: Moment): Record<string, string> {
    const [project, key] = this.#both(asked.keyId, now);
    return rateLimitHeaders([project.meter.left(asked.project, now), key.meter.left(asked.key, now)]);
  }

  #both(keyId: string, now: Moment): [project: Subject, key: Subject] {
    return [this.#subject(PROJECT, now), this.#subject(keyId, now)];
  }

  #subject(id: string, now: Moment): Subject {
    const known = this.#subjects.get(id);
    if (known !== undefined) return known;
    const subject = {
      meter: new Meter(this.#store.ledger(id), this.#store.minute(id), now.ms),
      estimator: new TokenEstimator(this.#store.estimator(id)),
    };
    this.#subjects.set(id, subject);
    return subject;
  }

  #sweep(now: Moment): void {
    if (now.ms - this.#sweptAt < SWEEP_MS) return;
    this.#sweptAt = now.ms;
    for (const [name, { at }] of this.#held) {
      if (now.ms - at < LEASE_MS) break; // in the order of coming
      this.#forget(name, now);
    }
  }
}

/** Milliseconds until a shortage ends by itself; 0 where that depends on running requests alone. */
function lasts(shortage: Shortage): number {
  switch (shortage.kind) {
    case 'answer':
      return Number.POSITIVE_INFINITY;
    case 'month':
      return shortage.running ? 0 : Number.MAX_VALUE;
    case 'requests':
    case 'tokens':
      return shortage.waitMs;
    case 'concurrent':
      return 0;
  }
}

function maySoonEnd(shortage: Shortage): boolean {
  return shortage.kind === 'concurrent' || ('running' in shortage && shortage.running);
}
