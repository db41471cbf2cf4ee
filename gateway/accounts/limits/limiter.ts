/**
 * Counts the requests of one project, its people and keys, or of one person's keys, or of one key, against their limits. Pure: the caller
 * hands in times and stored counts, so a test drives it in virtual time.
 *
 * A request reserves an estimate (`reserve`). `correct` says what an attempt used as soon as that is known, `settle` books it for its
 * month, and `release` ends the request's place among the concurrent ones.
 */
import { GrantedRequest } from './granted-request.ts';
import { limitsConcurrency } from './limits.ts';
import {
  LimitMeter,
  type LimitShortage,
  type LimitUse,
  type MeterTime,
  type MonthLedger,
  rateLimitHeaders,
} from './meter.ts';
import {
  GPU_METER_PREFIX,
  type LimitScope,
  type LimitSet,
  type LimitSubject,
  limitedModels,
  limitParties,
  meterIds,
  modelMeter,
  PROJECT_METER,
} from './parties.ts';
import { TokenEstimator, type TokenForecast, type UsedTokens } from './token-estimator.ts';

export interface Reservation extends TokenForecast, LimitSet {
  /** Of the request. */
  name: string;
}

export type LimitVerdict = { granted: true; headers: Record<string, string> } | LimitRefusal;

export interface LimitRefusal {
  granted: false;
  scope: LimitScope;
  /** The limit is of this model alone. */
  model?: string | undefined;
  shortage: LimitShortage;
  /** Until all limits have room again, if nothing else comes; 0 where only the end of running requests makes room. */
  waitMs: number;
  /** The end of running requests may make room within moments. */
  soon: boolean;
  headers: Record<string, string>;
}

/** What outlives the limiter, by the id of a meter. */
export interface LimiterStore {
  minute(id: string): unknown;
  estimator(id: string): unknown;
  ledger(id: string): MonthLedger;
  /** What `changedHolds` gave and is not gone, and how long ago that was. */
  holds(): readonly { name: string; state: unknown; savedMsAgo: number }[];
}

/** What one attempt at a request used. */
export interface AttemptUse extends UsedTokens {
  /** Of the request. */
  name: string;
  /** Its number; unique within the request. */
  attempt: number;
  /** The engine answered whole and without an error: no other attempt follows. */
  isComplete: boolean;
}

export interface SettledUse extends AttemptUse, LimitSubject {
  /** Of GPUs, milliseconds. */
  gpuMs: number;
  /** What was settled of the same attempt before, by estimate. */
  before?: UsedTokens | undefined;
  /** The request was counted by `reserve`. Lines of batches are not: limits per minute do not hold for them. */
  isReserved: boolean;
  /** When the attempt ended: how long ago, and in which month. */
  ageMs: number;
  month: string;
}

/** A request that is never released nor settled (its isolate and its node died) counts as running for so long. */
const LEASE_MS = 60 * 60_000;
/** A released request whose attempts are not all reported (one was cancelled before its node took it) reserves nothing after this. */
const REPORTS_MS = 5 * 60_000;
/** A request whose answer is whole and that nobody releases (its isolate died) loses its place after this. */
const RELEASE_MS = 60_000;
const RUNNING_MAX = 100_000;
const SWEEP_MS = 60_000;
const MINUTE_MS = 60_000;

interface Subject {
  meter: LimitMeter;
  estimator: TokenEstimator;
}

export class Limiter {
  readonly #store: LimiterStore;
  readonly #subjects = new Map<string, Subject>();
  /** Oldest first. At most RUNNING_MAX. */
  readonly #holds = new Map<string, GrantedRequest>();
  /** Names whose hold is not what was saved of it. At most as many as there are holds and saved ones. */
  readonly #unsaved = new Set<string>();
  readonly #saved = new Set<string>();
  #sweptAt = 0;

  constructor(store: LimiterStore, now: MeterTime) {
    this.#store = store;
    const known: [string, GrantedRequest][] = [];
    for (const { name, state, savedMsAgo } of store.holds()) {
      this.#saved.add(name);
      const hold = GrantedRequest.of(state, now.ms - savedMsAgo);
      if (hold === undefined) this.#unsaved.add(name);
      else known.push([name, hold]);
    }
    for (const [name, hold] of known.sort(([, a], [, b]) => a.at - b.at)) {
      this.#holds.set(name, hold);
      for (const id of hold.meters) this.#subject(id, now).meter.resume(hold.counted, hold.running);
    }
  }

  /** Counts a request in, or says why not. */
  reserve(asked: Reservation, now: MeterTime): LimitVerdict {
    this.#sweep(now);
    const tokens = this.#estimate(asked, now);
    const claim = { tokens, maxTokens: asked.counts === 'answer' ? asked.maxTokens : undefined };
    const parties = limitParties(asked);
    const short = parties.flatMap(({ scope, id, limits, model }) =>
      this.#subject(id, now)
        .meter.shortages(limits, claim, now)
        .map((shortage) => ({ scope, model, shortage })),
    );
    const [worst] = short.sort((a, b) => lasts(b.shortage) - lasts(a.shortage));
    if (worst !== undefined) {
      const waitMs = lasts(worst.shortage);
      const soon = short.every(({ shortage }) => maySoonEnd(shortage));
      return { granted: false, ...worst, waitMs, soon, headers: this.#headers(asked, now) };
    }
    const { name, keyId, counts, bodyBytes, maxTokens, key, user, project } = asked;
    const meters = parties.map(({ id }) => id);
    for (const id of meters) this.#subject(id, now).meter.take(tokens, now);
    const concurrent = limitsConcurrency([key, user, project]);
    this.#holds.set(
      name,
      new GrantedRequest({ keyId, meters, counts, bodyBytes, maxTokens, concurrent, reserved: tokens }, now.ms),
    );
    this.#unsaved.add(name);
    const oldest = this.#holds.keys().next().value;
    if (this.#holds.size > RUNNING_MAX && oldest !== undefined) this.#forget(oldest, now);
    return { granted: true, headers: this.#headers(asked, now) };
  }

  #estimate(asked: Reservation, now: MeterTime): number {
    const [project, key] = this.#both(asked.keyId, now);
    const tightest = Math.min(...limitParties(asked).flatMap(({ limits }) => limits?.tokens_per_minute ?? []));
    const { estimator } = !key.estimator.believed && project.estimator.believed ? project : key;
    return estimator.estimate(asked, Number.isFinite(tightest) ? tightest : 0);
  }

  /** What an attempt used is known, though not yet on disk. */
  correct(use: AttemptUse, now: MeterTime): void {
    const hold = this.#holds.get(use.name);
    if (hold === undefined) return;
    if (!hold.isKnown) this.#learn(hold, use, now);
    this.#change(use.name, hold, now, () => hold.report(use, now.ms));
  }

  /** The request is over. `attempts`: how many of its attempts will be settled; 0: it never reached an engine. */
  release(name: string, attempts: number, now: MeterTime): void {
    const hold = this.#holds.get(name);
    if (hold === undefined) return;
    this.#stop(hold, now);
    if (attempts === 0) return this.#forget(name, now);
    this.#change(name, hold, now, () => hold.release(attempts, now.ms));
  }

  /** Books what one attempt at a request used. @returns the meters that counted it */
  settle(settled: SettledUse, now: MeterTime): readonly string[] {
    const { name, prompt, completion, before, gpuMs, isReserved, ageMs, month } = settled;
    const hold = this.#holds.get(name);
    const meters = hold?.meters ?? meterIds(settled);
    const tokens = prompt + completion - (before === undefined ? 0 : before.prompt + before.completion);
    for (const id of meters) {
      const { meter } = this.#subject(id, now);
      // Not held: the object lost it, or the request was over. Its minute counts it where it happened.
      if (hold === undefined && isReserved && ageMs < MINUTE_MS)
        meter.change({ counted: tokens, estimated: 0, unbooked: 0 }, now.ms - ageMs, now);
      meter.book(tokens, month, now);
      meter.bookGpu(gpuMs, month, now);
    }
    if (hold === undefined) return meters;
    if (!hold.isKnown) this.#learn(hold, settled, now);
    this.#change(name, hold, now, () => hold.book(settled, now.ms));
    return meters;
  }

  /** What another gateway booked for the month of one meter: tokens, or milliseconds where `id` begins with GPU. */
  bookElsewhere(id: string, more: number, now: MeterTime): void {
    if (id.startsWith(GPU_METER_PREFIX))
      this.#subject(id.slice(GPU_METER_PREFIX.length), now).meter.bookGpu(more, now.month, now);
    else this.#subject(id, now).meter.book(more, now.month, now);
  }

  /** What of each limit is used now. Of models those that limits name, and `asked.model`. */
  uses(asked: LimitSet, now: MeterTime): Record<LimitScope, LimitUse[]> {
    const uses: Record<LimitScope, LimitUse[]> = { project: [], user: [], key: [] };
    for (const { scope, id, limits } of limitParties({ ...asked, model: undefined })) {
      uses[scope].push(...this.#subject(id, now).meter.uses(limits, now));
      for (const [model, ofModel] of limitedModels(limits, asked.model)) {
        const { meter } = this.#subject(modelMeter(id, model), now);
        uses[scope].push(...meter.uses(ofModel, now).map((use) => ({ ...use, model })));
      }
    }
    return uses;
  }

  /** What is to be saved of each subject; those that are idle are let go of. */
  *states(now: MeterTime): Generator<{ id: string; minute: object | undefined; estimator: object }> {
    for (const [id, { meter, estimator }] of this.#subjects) {
      const idle = meter.idle(now);
      if (idle) this.#subjects.delete(id);
      yield { id, minute: idle ? undefined : meter.state(now), estimator: estimator.state() };
    }
  }

  /** Holds that changed since the last call; `state` is undefined of one that is gone. Requests that were short are in none. */
  *changedHolds(now: MeterTime): Generator<{ name: string; state: object | undefined }> {
    for (const name of this.#unsaved) {
      const hold = this.#holds.get(name);
      if (hold !== undefined) this.#saved.add(name);
      else if (!this.#saved.delete(name)) continue;
      yield { name, state: hold?.state(now.ms) };
    }
    this.#unsaved.clear();
  }

  /** The process that served the running requests is gone, and their clients with it. Reports of their attempts may still come. */
  interrupt(now: MeterTime): void {
    for (const [name, hold] of this.#holds) {
      this.#stop(hold, now);
      hold.since ??= now.ms;
      this.#unsaved.add(name);
    }
  }

  /** Applies `change` to a hold, and what it makes of the hold's count to all meters. */
  #change(name: string, hold: GrantedRequest, now: MeterTime, change: () => void): void {
    const before = hold.counted;
    change();
    const after = hold.counted;
    const more = {
      counted: after.counted - before.counted,
      estimated: after.estimated - before.estimated,
      unbooked: after.unbooked - before.unbooked,
    };
    for (const id of hold.meters) this.#subject(id, now).meter.change(more, hold.at, now);
    this.#unsaved.add(name);
    if (hold.isDone) this.#forget(name, now);
  }

  #learn(hold: GrantedRequest, used: UsedTokens, now: MeterTime): void {
    for (const { estimator } of this.#both(hold.keyId, now)) estimator.learn(hold.forecast, used);
  }

  /** Its place is free. */
  #stop(hold: GrantedRequest, now: MeterTime): void {
    if (!hold.running) return;
    hold.running = false;
    for (const id of hold.meters) this.#subject(id, now).meter.release();
  }

  /** From now on only what is booked of it counts. */
  #forget(name: string, now: MeterTime): void {
    const hold = this.#holds.get(name);
    if (hold === undefined) return;
    this.#holds.delete(name);
    this.#stop(hold, now);
    this.#change(name, hold, now, () => hold.drop());
    if (!this.#saved.has(name)) this.#unsaved.delete(name);
  }

  #headers(asked: Reservation, now: MeterTime): Record<string, string> {
    return rateLimitHeaders(
      limitParties(asked).map(({ id, limits }) => this.#subject(id, now).meter.left(limits, now)),
    );
  }

  #both(keyId: string, now: MeterTime): [project: Subject, key: Subject] {
    return [this.#subject(PROJECT_METER, now), this.#subject(keyId, now)];
  }

  #subject(id: string, now: MeterTime): Subject {
    const known = this.#subjects.get(id);
    if (known !== undefined) return known;
    const subject = {
      meter: new LimitMeter(
        this.#store.ledger(id),
        this.#store.ledger(`${GPU_METER_PREFIX}${id}`),
        this.#store.minute(id),
        now.ms,
      ),
      estimator: new TokenEstimator(this.#store.estimator(id)),
    };
    this.#subjects.set(id, subject);
    return subject;
  }

  #sweep(now: MeterTime): void {
    if (now.ms - this.#sweptAt < SWEEP_MS) return;
    this.#sweptAt = now.ms;
    for (const [name, hold] of this.#holds) {
      const sinceMs = hold.since === undefined ? 0 : now.ms - hold.since;
      if (now.ms - hold.at >= LEASE_MS || (!hold.running && sinceMs >= REPORTS_MS)) this.#forget(name, now);
      else if (hold.isOver && sinceMs >= RELEASE_MS) {
        this.#stop(hold, now);
        this.#change(name, hold, now, () => {});
      }
    }
  }
}

/** Milliseconds until a shortage ends by itself; 0 where that depends on running requests alone. */
function lasts(shortage: LimitShortage): number {
  switch (shortage.kind) {
    case 'answer':
      return Number.POSITIVE_INFINITY;
    case 'month':
      return shortage.running ? 0 : Number.MAX_VALUE;
    case 'gpu-month':
      return Number.MAX_VALUE;
    case 'requests':
    case 'tokens':
      return shortage.waitMs;
    case 'concurrent':
      return 0;
  }
}

function maySoonEnd(shortage: LimitShortage): boolean {
  return shortage.kind === 'concurrent' || ('running' in shortage && shortage.running);
}
