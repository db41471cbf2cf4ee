/**
 * Grants requests of limited accounts in this process, from leases of the limits objects that other processes own. In
 * the usual case a request waits for no other process. See gateway/accounts/limits/limit-leases.ts.
 */
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { LEASE_LIFE_MS, type LeasedRequest, type LimitLease } from '../../../accounts/limits/limit-leases.ts';
import { tightestTokens } from '../../../accounts/limits/limit-subjects.ts';
import type { LimitVerdict, Reservation } from '../../../accounts/limits/limiter.ts';
import type { LimitsObject } from '../../../accounts/limits/limits-object.ts';
import { MONTH_AMOUNTS } from '../../../accounts/limits/month-amounts.ts';
import { estimateTokens, TokenEstimator } from '../../../accounts/limits/token-estimator.ts';
import type { ObjectNamespace, ObjectStub } from '../../../platform/object-context.ts';
import { limitsConcurrency } from '../../../settings/limits-schema.ts';

type LimitsStub = ObjectStub<LimitsObject>;

/** Granted requests are reported to the owner within this time. */
const REPORT_MS = 100;
/** Pause before a report is sent again. */
const RETRY_MS = 500;
/** A new lease is asked for if this part of the last one is used. */
const REFILL_USED = 0.5;
/** After the owner granted no lease, it is not asked again for this time. */
const NONE_MS = 1_000;
/** Maximum kinds of requests with leases: one for each key, model and set of limits. */
const SHARES_MAX = 10_000;
/** Maximum requests that wait to be reported, for each limits object. Above it, the owner is asked for each request. */
const UNREPORTED_MAX = 10_000;
const STUBS_MAX = 4_096;

interface LimitSharesOptions {
  limits: ObjectNamespace<LimitsObject>;
  /** True if this process owns the limits object. */
  isOwner(subject: string): boolean;
  /** Number of processes that run. */
  processes(): number;
  /** Names this process. */
  source: string;
  /** Milliseconds of a monotonic clock. */
  now(): number;
  after(ms: number, call: () => void): void;
}

interface HeldLease extends LimitLease {
  /** Requests with which it began. */
  granted: number;
  until: number;
  project: TokenEstimator;
  key: TokenEstimator;
}

/** Leases for one kind of requests, oldest first. At most a few: a new one is asked for when the last is half used. */
interface Share {
  leases: HeldLease[];
  isAsking: boolean;
  /** The owner is asked for no lease before this time. */
  notBefore: number;
}

/** What the owner of one limits object does not know yet. */
interface Unreported {
  granted: LeasedRequest[];
  ended: number[];
  /** The report that is on its way. */
  running: Promise<void> | undefined;
  isScheduled: boolean;
}

export class LimitShares {
  readonly #options: LimitSharesOptions;
  /** At most SHARES_MAX; the oldest is dropped. */
  readonly #shares = new Map<string, Share>();
  /** At most STUBS_MAX. */
  readonly #stubs = new Map<string, LimitsStub>();
  /** By subject; at most the subjects with leases. */
  readonly #unreported = new Map<string, Unreported>();
  #position = 0;

  constructor(options: LimitSharesOptions) {
    this.#options = options;
  }

  get namespace(): ObjectNamespace<LimitsObject> {
    return { getByName: (subject) => this.#of(subject) };
  }

  /** Stubs are remembered, because V8 optimizes no call of an object with a new prototype. */
  #of(subject: string): LimitsStub {
    const known = this.#stubs.get(subject);
    if (known !== undefined) return known;
    const stub = this.#options.limits.getByName(subject);
    const made: LimitsStub = Object.assign(Object.create(stub), {
      reserve: (asked) => this.#reserve(subject, stub, asked),
      // The owner must know a request before it learns how the request ended.
      release: (...args) => this.#reported(subject).then(() => stub.release(...args)),
      correct: (...args) => this.#reported(subject).then(() => stub.correct(...args)),
      settle: (...args) => this.#reported(subject).then(() => stub.settle(...args)),
    } satisfies Partial<LimitsStub>);
    if (this.#stubs.size >= STUBS_MAX) this.#stubs.clear();
    this.#stubs.set(subject, made);
    return made;
  }

  async #reserve(subject: string, stub: LimitsStub, asked: Reservation): Promise<LimitVerdict> {
    if (this.#options.isOwner(subject) || mustAsk(asked)) return stub.reserve(asked);
    const share = this.#share(subject, asked);
    const granted = this.#grant(subject, share, asked);
    if (granted !== undefined) {
      if (needsMore(share)) neverRejects(this.#refill(stub, share, asked));
      return granted;
    }
    if (!this.#mayAsk(share)) return stub.reserve(asked);
    const askedAt = this.#options.now();
    share.isAsking = true;
    try {
      const { verdict, lease } = await stub.reserveWithLease(asked, this.#others());
      this.#hold(share, lease, askedAt);
      return verdict;
    } finally {
      share.isAsking = false;
    }
  }

  #share(subject: string, { keyId, userId, model, key, project, user }: Reservation): Share {
    const kind = JSON.stringify([subject, keyId, userId, model, key, project, user]);
    const known = this.#shares.get(kind);
    if (known !== undefined) return known;
    const [oldest] = this.#shares.keys();
    if (this.#shares.size >= SHARES_MAX && oldest !== undefined) this.#shares.delete(oldest);
    const share = { leases: [], isAsking: false, notBefore: Number.NEGATIVE_INFINITY };
    this.#shares.set(kind, share);
    return share;
  }

  /** Grants from a lease. Undefined: no lease has enough left for the request. */
  #grant(subject: string, share: Share, asked: Reservation): LimitVerdict | undefined {
    this.#endOld(subject, share);
    if (share.leases.length === 0) return undefined;
    const { granted } = this.#waiting(subject);
    if (granted.length >= UNREPORTED_MAX) return undefined;
    for (const lease of share.leases) {
      const tokens = estimateTokens(asked, tightestTokens(asked), lease);
      if (lease.requests < 1 || (lease.tokens !== undefined && lease.tokens < tokens)) continue;
      lease.requests--;
      if (lease.tokens !== undefined) lease.tokens -= tokens;
      const { name, keyId, counts, bodyBytes, maxTokens } = asked;
      const { id, meters } = lease;
      granted.push({
        position: ++this.#position,
        lease: id,
        name,
        keyId,
        meters,
        counts,
        bodyBytes,
        maxTokens,
        tokens,
      });
      this.#schedule(subject, REPORT_MS);
      return { granted: true, headers: headersOf(share.leases) };
    }
    return undefined;
  }

  /** Gives back leases that are over or used up. */
  #endOld(subject: string, share: Share): void {
    const now = this.#options.now();
    const over = share.leases.filter(({ until, requests }) => until <= now || requests < 1);
    if (over.length === 0) return;
    share.leases = share.leases.filter((one) => !over.includes(one));
    this.#waiting(subject).ended.push(...over.map(({ id }) => id));
    this.#schedule(subject, REPORT_MS);
  }

  #mayAsk(share: Share): boolean {
    return !share.isAsking && this.#options.now() >= share.notBefore;
  }

  #others(): number {
    return Math.max(1, this.#options.processes() - 1);
  }

  async #refill(stub: LimitsStub, share: Share, asked: Reservation): Promise<void> {
    if (!this.#mayAsk(share)) return;
    const askedAt = this.#options.now();
    share.isAsking = true;
    try {
      this.#hold(share, await stub.lease(asked, this.#others()), askedAt);
    } catch {
      share.notBefore = this.#options.now() + NONE_MS;
    } finally {
      share.isAsking = false;
    }
  }

  #hold(share: Share, lease: LimitLease | undefined, askedAt: number): void {
    if (lease === undefined) {
      share.notBefore = this.#options.now() + NONE_MS;
      return;
    }
    const { project, key } = lease.estimators;
    share.leases.push({
      ...lease,
      granted: lease.requests,
      until: askedAt + LEASE_LIFE_MS,
      project: new TokenEstimator(project),
      key: new TokenEstimator(key),
    });
  }

  // --- reports ---

  #waiting(subject: string): Unreported {
    const known = this.#unreported.get(subject);
    if (known !== undefined) return known;
    const made: Unreported = { granted: [], ended: [], running: undefined, isScheduled: false };
    this.#unreported.set(subject, made);
    return made;
  }

  #schedule(subject: string, ms: number): void {
    const waiting = this.#waiting(subject);
    if (waiting.isScheduled) return;
    waiting.isScheduled = true;
    this.#options.after(ms, () => {
      waiting.isScheduled = false;
      neverRejects(this.#reported(subject));
    });
  }

  /** Resolves when the owner knows all requests so far, or when it cannot be reached now. Never rejects. */
  async #reported(subject: string): Promise<void> {
    const waiting = this.#unreported.get(subject);
    if (waiting === undefined) return;
    if (waiting.running !== undefined) await waiting.running;
    if (waiting.granted.length === 0 && waiting.ended.length === 0) return;
    waiting.running ??= this.#report(subject, waiting).finally(() => {
      waiting.running = undefined;
    });
    await waiting.running;
  }

  async #report(subject: string, waiting: Unreported): Promise<void> {
    const { granted, ended } = waiting;
    waiting.granted = [];
    waiting.ended = [];
    try {
      await this.#options.limits.getByName(subject).report({ source: this.#options.source, granted, ended });
      if (waiting.granted.length === 0 && waiting.ended.length === 0) this.#unreported.delete(subject);
    } catch {
      waiting.granted = [...granted, ...waiting.granted];
      waiting.ended = [...ended, ...waiting.ended];
      this.#schedule(subject, RETRY_MS);
    }
  }
}

/** True if only the owner can decide: places of concurrent requests, or a response that can never fit. */
function mustAsk(asked: Reservation): boolean {
  const { key, project, user, counts, maxTokens = 0, media } = asked;
  const tightest = tightestTokens(asked);
  const isTooLarge = counts === 'answer' && tightest > 0 && maxTokens > tightest;
  const isMediaLimited =
    media !== undefined && [key, project, user].some((set) => set?.[MONTH_AMOUNTS[media].limit] !== undefined);
  return isTooLarge || isMediaLimited || limitsConcurrency([key, project, user]);
}

function needsMore({ leases }: Share): boolean {
  const granted = leases.reduce((sum, one) => sum + one.granted, 0);
  const left = leases.reduce((sum, one) => sum + one.requests, 0);
  return left <= granted * (1 - REFILL_USED);
}

/** The owner's headers of the last lease. What this process holds remains, too. */
function headersOf(leases: readonly HeldLease[]): Record<string, string> {
  const headers = { ...leases.at(-1)?.headers };
  const add = (name: string, more: number) => {
    const known = headers[name];
    if (known !== undefined) headers[name] = String(Number(known) + more);
  };
  add(
    'x-ratelimit-remaining-requests',
    leases.reduce((sum, { requests }) => sum + requests, 0),
  );
  add('x-ratelimit-remaining-tokens', Math.floor(leases.reduce((sum, { tokens = 0 }) => sum + tokens, 0)));
  return headers;
}
