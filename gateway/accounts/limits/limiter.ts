/**
 * Counts requests against the limits of one project with its users and keys, of one user's keys, or of one key. Pure:
 * the caller passes in times and stored counts, so a test uses virtual time. `reserve` counts a request with an
 * estimate. `correct` replaces the estimate by an attempt's usage as soon as it is known, `settle` adds the usage to
 * the month's sum, and `release` ends the request's place among the concurrent requests.
 */

import { limitsConcurrency } from '../../settings/limits-schema.ts';
import { GrantedRequest } from './granted-request.ts';
import { type LeaseReport, type LimitLease, LimitLeases } from './limit-leases.ts';
import { LimitMeter, type LimitShortage, type LimitUse, type MeterTime, rateLimitHeaders } from './limit-meter.ts';
import { lasts, maySoonEnd } from './limit-shortage.ts';
import {
  type LimitScope,
  type LimitSet,
  type LimitSubject,
  limitedModels,
  limitParties,
  meterIds,
  modelMeter,
  PROJECT_METER,
  tightestTokens,
} from './limit-subjects.ts';
import { type MediaAmount, MONTH_AMOUNT_NAMES, MONTH_AMOUNTS, type MonthLedger } from './month-amounts.ts';
import { estimateTokens, TokenEstimator, type TokenForecast, type UsedTokens } from './token-estimator.ts';

export interface Reservation extends TokenForecast, LimitSet {
  /** Internal id of the request. */
  name: string;
  /** The process that serves it; absent: there is only one. */
  process?: string;
  /** The amount of a month that its endpoint uses in addition to GPU time. Absent: none. */
  media?: MediaAmount;
}

export type LimitVerdict = { granted: true; headers: Record<string, string> } | LimitRefusal;

export interface LimitRefusal {
  granted: false;
  scope: LimitScope;
  /** The model whose limit applies; undefined: the limit is for all models. */
  model?: string | undefined;
  shortage: LimitShortage;
  /**
   * Milliseconds until the request fits all limits if no other request arrives; 0 if this depends only on the end of
   * running requests.
   */
  waitMs: number;
  /** True if the request may fit within moments, when running requests end. */
  soon: boolean;
  headers: Record<string, string>;
}

/** State that outlives the limiter, by the id of a meter. */
export interface LimiterStore {
  minute(id: string): unknown;
  estimator(id: string): unknown;
  ledger(id: string): MonthLedger;
  /** The running requests as `changedRequests` last reported them, with the milliseconds since they were saved. */
  requests(): readonly { name: string; state: unknown; savedMsAgo: number }[];
}

/** The usage of one attempt. */
export interface AttemptUse extends UsedTokens {
  /** Internal id of the request. */
  name: string;
  /** The attempt's number, unique within the request. */
  attempt: number;
  /** True if the engine's response was complete and without an error, so that no other attempt follows. */
  isComplete: boolean;
}

export interface SettledUse extends AttemptUse, LimitSubject {
  /** GPU time of the attempt in milliseconds. */
  gpuMs: number;
  /** Milliseconds of audio and number of images. Absent: none. */
  audioMs?: number | undefined;
  images?: number | undefined;
  /** The estimated usage that an earlier settlement of this attempt counted; absent: there was none. */
  before?: UsedTokens | undefined;
  /**
   * True if `reserve` counted the request. Lines of batches are not reserved, because limits per minute do not apply to
   * them.
   */
  isReserved: boolean;
  /** When the attempt ended: how many milliseconds ago, and in which month. */
  ageMs: number;
  month: string;
}

/**
 * Maximum time for which a request counts. It bounds the reservation of a request whose isolate and node both died
 * before it was released or settled.
 */
const LEASE_MS = 60 * 60_000;
/**
 * A released request reserves nothing after this time, even if reports of attempts are missing: an attempt may have
 * been cancelled before its node received it.
 */
const REPORTS_MS = 5 * 60_000;
/**
 * Maximum time from a complete response to the release of its request. After it, the request no longer counts as
 * concurrent: the isolate that should release it has died.
 */
const RELEASE_MS = 60_000;
const RUNNING_MAX = 100_000;
const SWEEP_MS = 60_000;
const MINUTE_MS = 60_000;
/** Maximum names of requests that were settled before the process that granted them reported them. */
const EARLY_MAX = 10_000;

interface Subject {
  meter: LimitMeter;
  estimator: TokenEstimator;
}

export class Limiter {
  readonly #store: LimiterStore;
  readonly #subjects = new Map<string, Subject>();
  /** Running requests, oldest first. At most RUNNING_MAX. */
  readonly #granted = new Map<string, GrantedRequest>();
  /** Names of requests with changes that are not saved. At most as many as there are granted and saved requests. */
  readonly #unsaved = new Set<string>();
  readonly #saved = new Set<string>();
  readonly #leases: LimitLeases;
  /** At most EARLY_MAX; the oldest is dropped. */
  readonly #settledEarly = new Set<string>();
  #sweptAt = 0;

  constructor(store: LimiterStore, now: MeterTime) {
    this.#store = store;
    this.#leases = new LimitLeases(Math.floor(now.ms) * 2 ** 10);
    const known: [string, GrantedRequest][] = [];
    for (const { name, state, savedMsAgo } of store.requests()) {
      this.#saved.add(name);
      const request = GrantedRequest.of(state, now.ms - savedMsAgo);
      if (request === undefined) this.#unsaved.add(name);
      else known.push([name, request]);
    }
    for (const [name, request] of known.sort(([, a], [, b]) => a.at - b.at)) {
      this.#granted.set(name, request);
      for (const id of request.meters) this.#subject(id, now).meter.resume(request.counted, request.running);
    }
  }

  /** Reserves the estimate of a request once, or returns why the request is refused. */
  reserve(asked: Reservation, now: MeterTime): LimitVerdict {
    this.#sweep(now);
    this.#leases.expire(now);
    if (this.#granted.has(asked.name)) return { granted: true, headers: this.#headers(asked, now) };
    const tokens = this.#estimate(asked, now);
    const claim = { tokens, maxTokens: asked.counts === 'answer' ? asked.maxTokens : undefined, media: asked.media };
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
    const { name, keyId, process, counts, bodyBytes, maxTokens, key, user, project } = asked;
    const meters = parties.map(({ id }) => id);
    for (const id of meters) this.#subject(id, now).meter.take(tokens, now);
    const concurrent = limitsConcurrency([key, user, project]);
    const request = { keyId, process, meters, counts, bodyBytes, maxTokens, concurrent, reserved: tokens };
    this.#grant(name, new GrantedRequest(request, now.ms), now);
    return { granted: true, headers: this.#headers(asked, now) };
  }

  #estimate(asked: Reservation, now: MeterTime): number {
    const [project, key] = this.#subjectsOf(asked.keyId, now);
    return estimateTokens(asked, tightestTokens(asked), { project: project.estimator, key: key.estimator });
  }

  /** Grants one of `processes` a part of the limits for requests like `asked`; see limit-leases.ts. */
  lease(asked: Reservation, processes: number, now: MeterTime): LimitLease | undefined {
    const parties = limitParties(asked);
    const meters = parties.map(({ id, limits }) => {
      const { meter } = this.#subject(id, now);
      return { meter, leasable: meter.leasable(limits, processes, now) };
    });
    const lease = this.#leases.grant(meters, this.#estimate(asked, now), now);
    if (lease === undefined) return undefined;
    const [project, key] = this.#subjectsOf(asked.keyId, now);
    const estimators = { project: project.estimator.state(), key: key.estimator.state() };
    return { ...lease, meters: parties.map(({ id }) => id), headers: this.#headers(asked, now), estimators };
  }

  /** Counts requests that a process granted from its leases. Each position of a process counts once. */
  report({ source, granted, ended }: LeaseReport, now: MeterTime): void {
    for (const { position, lease, name, tokens, ...request } of granted) {
      if (!this.#leases.isNew(source, position)) continue;
      this.#leases.use(lease, tokens, now);
      const isSettled = this.#settledEarly.delete(name);
      const reserved = isSettled ? 0 : tokens;
      const held = { ...request, process: source, concurrent: false, reserved };
      for (const id of request.meters) this.#subject(id, now).meter.take(reserved, now);
      if (isSettled) for (const id of request.meters) this.#subject(id, now).meter.release();
      else this.#grant(name, new GrantedRequest(held, now.ms), now);
    }
    for (const id of ended) this.#leases.end(id, now);
  }

  #grant(name: string, request: GrantedRequest, now: MeterTime): void {
    this.#granted.set(name, request);
    this.#unsaved.add(name);
    const oldest = this.#granted.keys().next().value;
    if (this.#granted.size > RUNNING_MAX && oldest !== undefined) this.#forget(oldest, now);
  }

  /** Counts the usage of an attempt that is known but not yet stored. */
  correct(use: AttemptUse, now: MeterTime): void {
    const request = this.#granted.get(use.name);
    if (request === undefined) return;
    if (!request.isKnown) this.#learn(request, use, now);
    this.#change(use.name, request, now, () => request.report(use, now.ms));
  }

  /** Ends a request. `attempts`: how many of its attempts will be settled; 0: the request never reached an engine. */
  release(name: string, attempts: number, now: MeterTime): void {
    const request = this.#granted.get(name);
    if (request === undefined) return;
    this.#stop(request, now);
    if (attempts === 0) return this.#forget(name, now);
    this.#change(name, request, now, () => request.release(attempts, now.ms));
  }

  /** Adds the usage of one attempt to the month's sum. */
  settle(settled: SettledUse, now: MeterTime): void {
    const { name, prompt, completion, before, isReserved, ageMs, month } = settled;
    const request = this.#granted.get(name);
    const meters = request?.meters ?? meterIds(settled);
    const tokens = prompt + completion - (before === undefined ? 0 : before.prompt + before.completion);
    for (const id of meters) {
      const { meter } = this.#subject(id, now);
      // If `request` is undefined, the object lost the request, or the request had ended. Its tokens then count at the
      // time when the attempt ended. Negative tokens do not change this minute: they correct tokens of an earlier
      // minute, and would here remove tokens of other requests.
      if (request === undefined && isReserved && tokens > 0 && ageMs < MINUTE_MS)
        meter.change({ counted: tokens, estimated: 0, unbooked: 0 }, now.ms - ageMs, now);
      meter.book(tokens, month, now);
      for (const amount of MONTH_AMOUNT_NAMES) meter.bookAmount(amount, settled[amount] ?? 0, month, now);
    }
    if (request === undefined) {
      if (isReserved) this.#rememberEarly(name);
      return;
    }
    if (!request.isKnown) this.#learn(request, settled, now);
    this.#change(name, request, now, () => request.book(settled, now.ms));
  }

  #rememberEarly(name: string): void {
    this.#settledEarly.add(name);
    const [oldest] = this.#settledEarly;
    if (this.#settledEarly.size > EARLY_MAX && oldest !== undefined) this.#settledEarly.delete(oldest);
  }

  /**
   * Returns the current usage of each limit, including those of the models that the limits name and of `asked.model`.
   */
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

  /** Returns the state of each meter that must be saved. Idle meters are removed from memory. */
  *states(now: MeterTime): Generator<{ id: string; minute: object | undefined; estimator: object }> {
    for (const [id, { meter, estimator }] of this.#subjects) {
      const idle = meter.idle(now);
      if (idle) this.#subjects.delete(id);
      yield { id, minute: idle ? undefined : meter.state(now), estimator: estimator.state() };
    }
  }

  /**
   * Returns the requests that changed since the last call; `state` is undefined if the request was removed. A request
   * that was granted and removed between two calls is omitted.
   */
  *changedRequests(now: MeterTime): Generator<{ name: string; state: object | undefined }> {
    for (const name of this.#unsaved) {
      const request = this.#granted.get(name);
      if (request !== undefined) this.#saved.add(name);
      else if (!this.#saved.delete(name)) continue;
      yield { name, state: request?.state(now.ms) };
    }
    this.#unsaved.clear();
  }

  /**
   * Ends running requests of a process that has ended: their clients are disconnected. Reports of their attempts may
   * still arrive.
   */
  interrupt(now: MeterTime, hasEnded: (request: GrantedRequest) => boolean = () => true): void {
    for (const [name, request] of this.#granted) {
      if (!hasEnded(request)) continue;
      this.#stop(request, now);
      request.since ??= now.ms;
      this.#unsaved.add(name);
    }
  }

  /** Applies `change` to a granted request, and adds the difference of its counts to all of its meters. */
  #change(name: string, request: GrantedRequest, now: MeterTime, change: () => void): void {
    const before = request.counted;
    change();
    const after = request.counted;
    const more = {
      counted: after.counted - before.counted,
      estimated: after.estimated - before.estimated,
      unbooked: after.unbooked - before.unbooked,
    };
    for (const id of request.meters) this.#subject(id, now).meter.change(more, request.at, now);
    this.#unsaved.add(name);
    if (request.isDone) this.#forget(name, now);
  }

  #learn(request: GrantedRequest, used: UsedTokens, now: MeterTime): void {
    for (const { estimator } of this.#subjectsOf(request.keyId, now)) estimator.learn(request.forecast, used);
  }

  /** Ends the request's place among the concurrent requests. */
  #stop(request: GrantedRequest, now: MeterTime): void {
    if (!request.running) return;
    request.running = false;
    for (const id of request.meters) this.#subject(id, now).meter.release();
  }

  /** Removes a request. From now on only its tokens in the month's sum count. */
  #forget(name: string, now: MeterTime): void {
    const request = this.#granted.get(name);
    if (request === undefined) return;
    this.#granted.delete(name);
    this.#stop(request, now);
    this.#change(name, request, now, () => request.drop());
    if (!this.#saved.has(name)) this.#unsaved.delete(name);
  }

  #headers(asked: Reservation, now: MeterTime): Record<string, string> {
    return rateLimitHeaders(
      limitParties(asked).map(({ id, limits }) => this.#subject(id, now).meter.left(limits, now)),
    );
  }

  #subjectsOf(keyId: string, now: MeterTime): [project: Subject, key: Subject] {
    return [this.#subject(PROJECT_METER, now), this.#subject(keyId, now)];
  }

  #subject(id: string, now: MeterTime): Subject {
    const known = this.#subjects.get(id);
    if (known !== undefined) return known;
    const subject = {
      meter: new LimitMeter(
        this.#store.ledger(id),
        (amount) => this.#store.ledger(`${MONTH_AMOUNTS[amount].prefix}${id}`),
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
    for (const [name, request] of this.#granted) {
      const sinceMs = request.since === undefined ? 0 : now.ms - request.since;
      if (now.ms - request.at >= LEASE_MS || (!request.running && sinceMs >= REPORTS_MS)) this.#forget(name, now);
      else if (request.isOver && sinceMs >= RELEASE_MS) {
        this.#stop(request, now);
        this.#change(name, request, now, () => {});
      }
    }
  }
}
