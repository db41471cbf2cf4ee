/**
 * Counts the requests of one project, its people and keys, or of one person's keys, or of one key, against their limits. Pure: the caller hands in times, stored counts
 * and waiting requests, so a test drives it in virtual time.
 *
 * A request reserves an estimate. `correct` puts what it used in the estimate's place, as soon as that is known; `settle` books it
 * for the month, once and for all.
 */
import { EACH_OTHER, type Limits, limitsOfModel } from './limits.ts';
import { type LimitUse, Meter, type Moment, type MonthLedger, rateLimitHeaders, type Shortage } from './meter.ts';
import { type Forecast, TokenEstimator, type Used } from './token-estimator.ts';

/** The request's owner and model, as far as limits count them. Absent members are not counted. */
export interface Counted {
  keyId: string;
  userId?: string | undefined;
  model?: string | undefined;
}

export interface LimitSet extends Counted {
  key: Limits | undefined;
  project: Limits | undefined;
  /** What all keys of the person share; held by `userId`. */
  user?: Limits | undefined;
}

export interface Reservation extends Forecast, LimitSet {
  /** Of the request. */
  name: string;
}

export type Scope = 'project' | 'user' | 'key';

export type Verdict = { granted: true; headers: Record<string, string> } | Refusal;

export interface Refusal {
  granted: false;
  scope: Scope;
  /** The limit is of this model alone. */
  model?: string | undefined;
  shortage: Shortage;
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
}

/** Ids of meters: the project's, a key's own, `user:…`; of one model that, a line's end and the model; of GPU time GPU and that. */
export const PROJECT = '';
export const GPU = 'gpu\n';

export function userMeter(userId: string): string {
  return `user:${userId}`;
}

export function modelMeter(id: string, model: string): string {
  return `${id}\n${model}`;
}

/** The meters of a request, whatever limits there are. */
export function metersOf({ keyId, userId, model }: Counted): string[] {
  const ids = [PROJECT, keyId, ...(userId === undefined ? [] : [userMeter(userId)])];
  return model === undefined ? ids : [...ids, ...ids.map((id) => modelMeter(id, model))];
}

/** A request that is never released nor settled (its isolate and its node died) counts as running for so long. */
const LEASE_MS = 60 * 60_000;
const RUNNING_MAX = 100_000;
const SWEEP_MS = 60_000;

interface Held extends Forecast {
  keyId: string;
  /** Meters that count it. */
  meters: readonly string[];
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

/** One set of limits that a request counts against. */
interface Party {
  scope: Scope;
  id: string;
  limits: Limits | undefined;
  model: string | undefined;
}

function partiesOf({ keyId, userId, model, key, project, user }: LimitSet): Party[] {
  const parties: Party[] = [
    { scope: 'project', id: PROJECT, limits: project, model: undefined },
    { scope: 'key', id: keyId, limits: key, model: undefined },
  ];
  if (userId !== undefined) parties.push({ scope: 'user', id: userMeter(userId), limits: user, model: undefined });
  if (model === undefined) return parties;
  for (const { scope, id, limits } of [...parties]) {
    const ofModel = limitsOfModel(limits, model);
    if (ofModel !== undefined) parties.push({ scope, id: modelMeter(id, model), limits: ofModel, model });
  }
  return parties;
}

function limitedModels(limits: Limits | undefined, asked: string | undefined): [model: string, ofModel: Limits][] {
  const named = Object.entries(limits?.models ?? {}).filter(([model]) => model !== EACH_OTHER);
  const ofAsked =
    asked === undefined || named.some(([model]) => model === asked) ? undefined : limitsOfModel(limits, asked);
  return asked === undefined || ofAsked === undefined ? named : [...named, [asked, ofAsked]];
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
    const parties = partiesOf(asked);
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
    const { name, keyId, counts, bodyBytes, maxTokens } = asked;
    const meters = parties.map(({ id }) => id);
    for (const id of meters) this.#subject(id, now).meter.take(tokens, now);
    const forecast = { counts, bodyBytes, maxTokens };
    this.#held.set(name, { ...forecast, keyId, meters, tokens, at: now.ms, running: true, estimated: true });
    const oldest = this.#held.keys().next().value;
    if (this.#held.size > RUNNING_MAX && oldest !== undefined) this.#forget(oldest, now);
    return { granted: true, headers: this.#headers(asked, now) };
  }

  #estimate(asked: Reservation, now: Moment): number {
    const [project, key] = this.#both(asked.keyId, now);
    const tightest = Math.min(...partiesOf(asked).flatMap(({ limits }) => limits?.tokens_per_minute ?? []));
    const { estimator } = !key.estimator.believed && project.estimator.believed ? project : key;
    return estimator.estimate(asked, Number.isFinite(tightest) ? tightest : 0);
  }

  /** What a request used is known, though not yet on disk. */
  correct(name: string, used: Used, now: Moment): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    const after = used.prompt + used.completion;
    const correction = { before: held.tokens, after, estimated: held.estimated, countedAt: held.at };
    for (const id of held.meters) this.#subject(id, now).meter.correct(correction, now);
    if (held.estimated) for (const { estimator } of this.#both(held.keyId, now)) estimator.learn(held, used);
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

  /** What one attempt at a request used, on its node's word; of GPUs in milliseconds. Gives the meters that counted it. */
  settle(name: string, counted: Counted, used: Used, gpuMs: number, now: Moment): readonly string[] {
    this.correct(name, used, now);
    const held = this.#held.get(name);
    this.#held.delete(name);
    if (held !== undefined) this.#stop(held, now);
    const tokens = used.prompt + used.completion;
    const meters = held?.meters ?? metersOf(counted);
    for (const id of meters) {
      const { meter } = this.#subject(id, now);
      // Not held: another attempt at the same request was settled before, or the object was evicted meanwhile.
      if (held === undefined) meter.correct({ before: 0, after: tokens, estimated: false, countedAt: now.ms }, now);
      meter.book(tokens, now);
      meter.bookGpu(gpuMs, now);
    }
    return meters;
  }

  /** What another gateway booked for the month of one meter: tokens, or milliseconds where `id` begins with GPU. */
  bookElsewhere(id: string, more: number, now: Moment): void {
    if (id.startsWith(GPU)) this.#subject(id.slice(GPU.length), now).meter.bookGpu(more, now);
    else this.#subject(id, now).meter.bookElsewhere(more, now);
  }

  /** What of each limit is used now. Of models those that limits name, and `asked.model`. */
  uses(asked: LimitSet, now: Moment): Record<Scope, LimitUse[]> {
    const uses: Record<Scope, LimitUse[]> = { project: [], user: [], key: [] };
    for (const { scope, id, limits } of partiesOf({ ...asked, model: undefined })) {
      uses[scope].push(...this.#subject(id, now).meter.uses(limits, now));
      for (const [model, ofModel] of limitedModels(limits, asked.model)) {
        const { meter } = this.#subject(modelMeter(id, model), now);
        uses[scope].push(...meter.uses(ofModel, now).map((use) => ({ ...use, model })));
      }
    }
    return uses;
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
    for (const id of held.meters) this.#subject(id, now).meter.release();
  }

  /** As if it had asked for nothing but a request. */
  #forget(name: string, now: Moment): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    this.#stop(held, now);
    this.#held.delete(name);
    const correction = { before: held.tokens, after: 0, estimated: held.estimated, countedAt: held.at };
    for (const id of held.meters) this.#subject(id, now).meter.correct(correction, now);
  }

  #headers(asked: Reservation, now: Moment): Record<string, string> {
    return rateLimitHeaders(partiesOf(asked).map(({ id, limits }) => this.#subject(id, now).meter.left(limits, now)));
  }

  #both(keyId: string, now: Moment): [project: Subject, key: Subject] {
    return [this.#subject(PROJECT, now), this.#subject(keyId, now)];
  }

  #subject(id: string, now: Moment): Subject {
    const known = this.#subjects.get(id);
    if (known !== undefined) return known;
    const subject = {
      meter: new Meter(this.#store.ledger(id), this.#store.ledger(`${GPU}${id}`), this.#store.minute(id), now.ms),
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
    case 'gpu-month':
      return Number.MAX_VALUE;
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
