import { MonotonicClock } from '../../../shared/timing/monotonic-clock.ts';
import type { Env } from '../../env.ts';
import { GatewayObject } from '../../platform/gateway-object.ts';
import type { ObjectContext } from '../../platform/object-context.ts';
import type { LeaseReport, LimitLease } from './limit-leases.ts';
import type { MeterTime } from './limit-meter.ts';
import type { LimitSet, LimitSubject } from './limit-subjects.ts';
import { type AttemptUse, Limiter, type LimitRefusal, type LimitVerdict, type Reservation } from './limiter.ts';
import { LimiterStorage } from './limiter-storage.ts';
import { RecentSettlements } from './recent-settlements.ts';
import type { UsedTokens } from './token-estimator.ts';

/**
 * The final usage of one attempt. The tunnel object of its node reports it; for a line of a batch, the batch object
 * does.
 */
export interface AttemptSettlement extends AttemptUse, LimitSubject {
  /** GPU time of the attempt in milliseconds; absent: unknown. */
  gpuMs?: number | undefined;
  /** Milliseconds of audio and number of images. Absent: none. */
  audioMs?: number | undefined;
  images?: number | undefined;
  /** When the attempt ended; milliseconds since the epoch. */
  at: number;
  /** True if `reserve` counted the request. */
  isReserved: boolean;
  /** The estimated usage that an earlier settlement of this attempt counted; absent: there was none. */
  before?: UsedTokens | undefined;
}

/**
 * Maximum wait for a concurrent request to end. If a client sends its next request immediately after the last byte of a
 * response, the request arrives before the previous request is released.
 */
const SLOT_WAIT_MS = 250;
/**
 * Maximum wait for tokens. When a response ends, the tokens that it reserved and did not use become free. So a wait
 * helps if running responses end within a second or two.
 */
const TOKENS_WAIT_MS = 2_000;
const WAITING_MAX = 1_000;
/** Counts of the current minute are saved this long after they change, because each write delays responses. */
const SAVE_MS = 1_000;
/**
 * If an attempt ended longer ago than this, its settlement counts for the current month, because the sums of a closed
 * month must not change.
 */
const BACKDATED_MAX_MS = 7 * 24 * 60 * 60_000;
/**
 * How long the position of a source's last settlement is remembered, so that a repeated settlement does not count
 * twice.
 */
const SOURCE_RETENTION_MS = 7 * 24 * 60 * 60_000;

/**
 * A request can lose its place if it was granted longer ago and its process has ended. A process that has just started
 * may not be known yet.
 */
const KNOWN_MS = 10_000;
/** Interval of looking for such requests while requests are refused. */
const LOST_MS = 1_000;

interface WaitingRequest {
  again(): void;
}

/**
 * The limits object: all limits of one project with its users and keys, or of one user or one key without a project.
 * The counts are exact, because one thread counts all requests. The month's usage is written immediately, so an
 * eviction of this object loses none of it. The current minute, the running requests and the estimators are written a
 * second later, so an eviction loses at most their last second.
 */
export class LimitsObject extends GatewayObject {
  readonly #limiter: Limiter;
  readonly #store: LimiterStorage;
  /**
   * Clock of windows and leases. It is not the machine's clock, because windows and leases would not end if that clock
   * was set back.
   */
  readonly #clock = new MonotonicClock(() => Date.now());
  readonly #waiting = new Set<WaitingRequest>();
  readonly #recent = new RecentSettlements();
  #saving: (() => void) | undefined;
  #lostAt = Number.NEGATIVE_INFINITY;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    const { sql } = ctx.storage;
    sql.exec(
      'CREATE TABLE IF NOT EXISTS sources (id TEXT PRIMARY KEY, position INTEGER NOT NULL, at INTEGER NOT NULL)',
    );
    this.#store = new LimiterStorage(sql);
    this.#limiter = new Limiter(this.#store, this.#now());
    if (this.#store.isOtherProcess(env.PROCESS_ID)) this.#limiter.interrupt(this.#now());
  }

  /**
   * Reserves limits for a request, or returns why the request is refused. May wait first, up to SLOT_WAIT_MS or
   * TOKENS_WAIT_MS.
   */
  async reserve(asked: Reservation): Promise<LimitVerdict> {
    const from = this.#clock.now();
    for (;;) {
      const verdict = this.#limiter.reserve(asked, this.#now());
      if (verdict.granted) {
        this.#save();
        return verdict;
      }
      if (this.#endLost()) continue;
      const until = from + (verdict.shortage.kind === 'concurrent' ? SLOT_WAIT_MS : TOKENS_WAIT_MS);
      if (!this.#waits(verdict, until)) return verdict;
      await this.#change(until);
    }
  }

  /**
   * Like `reserve`. If the request is granted, one of `processes` also gets a lease for the requests that follow, unless
   * the limits have too little left.
   */
  async reserveWithLease(
    asked: Reservation,
    processes: number,
  ): Promise<{ verdict: LimitVerdict; lease: LimitLease | undefined }> {
    const verdict = await this.reserve(asked);
    return { verdict, lease: verdict.granted ? this.lease(asked, processes) : undefined };
  }

  /** Grants one of `processes` a lease for requests like `asked`. */
  lease(asked: Reservation, processes: number): LimitLease | undefined {
    const lease = this.#limiter.lease(asked, processes, this.#now());
    if (lease !== undefined) this.#save();
    return lease;
  }

  /** Counts what a process granted from its leases, and takes back leases that ended. */
  report(report: LeaseReport): void {
    this.#limiter.report(report, this.#now());
    if (report.ended.length > 0) this.#changed();
    this.#save();
  }

  /** Ends requests of processes that have ended without releasing them. @returns true if a request may fit now */
  #endLost(): boolean {
    const { PROCESSES } = this.env;
    const now = this.#now();
    if (PROCESSES === undefined || now.ms - this.#lostAt < LOST_MS) return false;
    this.#lostAt = now.ms;
    let some = false;
    this.#limiter.interrupt(now, ({ running, process, at }) => {
      const isLost = running && process !== undefined && now.ms - at > KNOWN_MS && !PROCESSES.isRunning(process);
      some ||= isLost;
      return isLost;
    });
    return some;
  }

  #waits({ soon }: LimitRefusal, until: number): boolean {
    return soon && this.#clock.now() < until && this.#waiting.size < WAITING_MAX;
  }

  /** Ends a request. `attempts`: how many of its attempts will be settled; 0: the request never reached an engine. */
  release(name: string, attempts: number): void {
    this.#limiter.release(name, attempts, this.#now());
    this.#changed();
    this.#save();
  }

  /**
   * Counts the usage of requests as soon as it is known. If this call is lost, the settlement that follows corrects the
   * counts.
   */
  correct(items: readonly AttemptUse[]): void {
    const now = this.#now();
    for (const item of items) this.#limiter.correct(item, now);
    this.#changed();
    this.#save();
  }

  /**
   * Settles attempts of one source, which is a tunnel object or a batch. The source repeats a settlement until it is
   * acknowledged; `position` numbers its settlements. Durable when this returns.
   */
  settle(source: string, items: readonly { position: number; settlement: AttemptSettlement }[]): void {
    const { sql } = this.ctx.storage;
    const now = this.#now();
    const known = sql.exec<{ position: number }>('SELECT position FROM sources WHERE id = ?', source).toArray()[0];
    let last = known?.position ?? 0;
    for (const { position, settlement } of items) {
      if (position <= last) continue;
      last = position;
      const elsewhere = this.#recent.add(source, settlement);
      const { before = elsewhere } = settlement;
      // Each source measures GPU time for itself. Only a complete report has media; an estimate that came first has none.
      const gpuMs = elsewhere === undefined ? (settlement.gpuMs ?? 0) : 0;
      const audioMs = (settlement.audioMs ?? 0) - (elsewhere?.audioMs ?? 0);
      const images = (settlement.images ?? 0) - (elsewhere?.images ?? 0);
      const ageMs = Math.max(0, Date.now() - settlement.at);
      const month = ageMs < BACKDATED_MAX_MS ? monthOf(Math.min(settlement.at, Date.now())) : now.month;
      this.#limiter.settle({ ...settlement, before, gpuMs, audioMs, images, ageMs, month }, now);
    }
    sql.exec('INSERT OR REPLACE INTO sources (id, position, at) VALUES (?, ?, ?)', source, last, Date.now());
    sql.exec('DELETE FROM sources WHERE at < ?', Date.now() - SOURCE_RETENTION_MS);
    this.#changed();
    this.#save();
  }

  uses(asked: LimitSet): ReturnType<Limiter['uses']> {
    return this.#limiter.uses(asked, this.#now());
  }

  #now(): MeterTime {
    return { ms: this.#clock.now(), month: monthOf(Date.now()) };
  }

  /** Wakes waiting requests, which may fit now. They try again in the order in which they arrived. */
  #changed(): void {
    for (const waiting of this.#waiting) waiting.again();
  }

  /** Resolves when a count changed, or at `until`. */
  #change(until: number): Promise<void> {
    return new Promise((resolve) => {
      const waiting: WaitingRequest = {
        again: () => {
          cancel();
          this.#waiting.delete(waiting);
          resolve();
        },
      };
      const cancel = this.ctx.clock.after(until - this.#clock.now(), () => waiting.again());
      this.#waiting.add(waiting);
    });
  }

  #save(): void {
    this.#saving ??= this.ctx.clock.after(SAVE_MS, () => {
      this.#saving = undefined;
      // If storage cannot be written, limits continue in memory, and a later save includes these counts.
      if (this.ctx.health.failure !== undefined) return this.#save();
      this.#store.save(this.#limiter, this.#now());
    });
  }
}

/** Formats a month in UTC, such as `2026-11`. @param at milliseconds since the epoch */
function monthOf(at: number): string {
  return new Date(at).toISOString().slice(0, 7);
}
