import { MonotonicClock } from '../../../shared/collections/monotonic-clock.ts';
import type { Env } from '../../env.ts';
import { GatewayObject } from '../../platform/gateway-object.ts';
import type { ObjectContext } from '../../platform/object-context.ts';
import { type AttemptUse, Limiter, type LimitRefusal, type LimitVerdict, type Reservation } from './limiter.ts';
import type { MeterTime } from './meter.ts';
import { GPU_METER_PREFIX, type LimitSet, type LimitSubject } from './parties.ts';
import { StoredLimits } from './stored-limits.ts';
import type { UsedTokens } from './token-estimator.ts';

/** What one attempt at a request used, as its node's object or its batch settles it. */
export interface AttemptSettlement extends AttemptUse, LimitSubject {
  /** GPU time, milliseconds; absent: none is known. */
  gpuMs?: number | undefined;
  /** When the attempt ended; milliseconds since the epoch. */
  at: number;
  /** `reserve` counted its request. */
  isReserved: boolean;
  /** What was settled of the same attempt before, by estimate. */
  before?: UsedTokens | undefined;
}

/** What a gateway booked in one month, by the id of a meter; under GPU milliseconds, else tokens. `origin`: which gateway; empty: this one. */
export interface MonthCount {
  origin: string;
  id: string;
  tokens: number;
}

/** A client that begins its next request at the last byte of the one before is faster than that one's release. */
const SLOT_WAIT_MS = 250;
/** What running requests reserve too much is known soon after their end: answers of a second or less are waited for. */
const TOKENS_WAIT_MS = 2_000;
const WAITING_MAX = 1_000;
/** Counts of the running minute are written so long after they changed: writing holds answers back. */
const SAVE_MS = 1_000;
/** A settlement that is older than this books this month: the sums of one that is closed stay as they were told. */
const BACKDATED_MAX_MS = 7 * 24 * 60 * 60_000;
/** Nodes whose last settlement is remembered, so that none counts twice. */
const SOURCE_KEPT_MS = 7 * 24 * 60 * 60_000;

interface Waiting {
  again(): void;
}

/**
 * All limits of one project, its people and keys, or of one person's or one key's without a project. The counts are exact, because one thread counts all requests.
 * Survives eviction: the month's use, written at once; the running minute, running requests and the estimates, except those of the last
 * second.
 */
export class LimitsObject extends GatewayObject {
  readonly #limiter: Limiter;
  readonly #store: StoredLimits;
  /** Windows and leases follow it: with the machine's clock they would stand still after that was set back. */
  readonly #clock = new MonotonicClock(() => Date.now());
  readonly #waiting = new Set<Waiting>();
  #saving: (() => void) | undefined;
  /** Counts of others are of this month on. */
  #elsewhereFrom = '';

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    const { sql } = ctx.storage;
    sql.exec(`CREATE TABLE IF NOT EXISTS elsewhere (origin TEXT NOT NULL, id TEXT NOT NULL, month TEXT NOT NULL, tokens INTEGER NOT NULL,
        PRIMARY KEY (origin, id, month));
      CREATE TABLE IF NOT EXISTS sources (id TEXT PRIMARY KEY, position INTEGER NOT NULL, at INTEGER NOT NULL)`);
    this.#store = new StoredLimits(sql);
    this.#limiter = new Limiter(this.#store, this.#now());
    if (this.#store.isOtherProcess(env.PROCESS_ID)) this.#limiter.interrupt(this.#now());
  }

  /** Counts a request in, or says why not. */
  async reserve(asked: Reservation): Promise<LimitVerdict> {
    const from = this.#clock.now();
    for (;;) {
      const verdict = this.#limiter.reserve(asked, this.#now());
      if (verdict.granted) {
        this.#save();
        return verdict;
      }
      const until = from + (verdict.shortage.kind === 'concurrent' ? SLOT_WAIT_MS : TOKENS_WAIT_MS);
      if (!this.#waits(verdict, until)) return verdict;
      await this.#change(until);
    }
  }

  #waits({ soon }: LimitRefusal, until: number): boolean {
    return soon && this.#clock.now() < until && this.#waiting.size < WAITING_MAX;
  }

  /** The request is over. `attempts`: how many of its attempts will be settled; 0: it never reached an engine. */
  release(name: string, attempts: number): void {
    // A follower of an earlier version says whether there was any.
    this.#limiter.release(name, Number(attempts), this.#now());
    this.#changed();
    this.#save();
  }

  /** What requests turned out to use. Their settlement follows: lost, this is made good by that. */
  correct(items: readonly AttemptUse[]): void {
    const now = this.#now();
    for (const item of items) this.#limiter.correct(item, now);
    this.#changed();
    this.#save();
  }

  /**
   * From a node's object, which says it again until it hears back: `position` counts its words. Durable when it returns.
   * `origin`: the gateway whose node it is, if another one's.
   */
  settle(source: string, items: readonly { position: number; settlement: AttemptSettlement }[], origin?: string): void {
    const { sql } = this.ctx.storage;
    const now = this.#now();
    const known = sql.exec<{ position: number }>('SELECT position FROM sources WHERE id = ?', source).toArray()[0];
    let last = known?.position ?? 0;
    for (const { position, settlement } of items) {
      if (position <= last) continue;
      last = position;
      const { prompt, completion, gpuMs = 0, before } = settlement;
      const ageMs = Math.max(0, Date.now() - settlement.at);
      const month = ageMs < BACKDATED_MAX_MS ? monthOf(Math.min(settlement.at, Date.now())) : now.month;
      const meters = this.#limiter.settle({ ...settlement, gpuMs, ageMs, month }, now);
      if (origin === undefined) continue;
      const tokens = prompt + completion - (before === undefined ? 0 : before.prompt + before.completion);
      for (const id of meters) {
        this.#writeElsewhere(origin, id, month, tokens);
        if (gpuMs > 0) this.#writeElsewhere(origin, `${GPU_METER_PREFIX}${id}`, month, Math.round(gpuMs));
      }
    }
    sql.exec('INSERT OR REPLACE INTO sources (id, position, at) VALUES (?, ?, ?)', source, last, Date.now());
    sql.exec('DELETE FROM sources WHERE at < ?', Date.now() - SOURCE_KEPT_MS);
    this.#changed();
    this.#save();
  }

  /** What of each limit is used now. */
  uses(asked: LimitSet): ReturnType<Limiter['uses']> {
    return this.#limiter.uses(asked, this.#now());
  }

  /** What each meter counted in a month, `2026-11`. */
  used(month: string): { id: string; used: number }[] {
    const query = 'SELECT id, used FROM months WHERE month = ?';
    return this.ctx.storage.sql.exec<{ id: string; used: number }>(query, month).toArray();
  }

  /** What each gateway booked in a month, as far as it is known here: of all meters, or of those that are named. */
  counts(month: string, ids?: readonly string[]): MonthCount[] {
    const { sql } = this.ctx.storage;
    const named = ids === undefined ? '' : 'AND id IN (SELECT value FROM json_each(?))';
    const given = ids === undefined ? [month] : [month, JSON.stringify(ids)];
    const others = sql.exec<MonthCount & { [name: string]: string | number }>(
      `SELECT origin, id, tokens FROM elsewhere WHERE month = ? ${named}`,
      ...given,
    );
    const counts: MonthCount[] = others.toArray();
    const theirs = new Map<string, number>();
    for (const { id, tokens } of counts) theirs.set(id, (theirs.get(id) ?? 0) + tokens);
    const mine = `SELECT id, used FROM months WHERE month = ? ${named}`;
    for (const { id, used } of sql.exec<{ id: string; used: number }>(mine, ...given).toArray())
      counts.push({ origin: '', id, tokens: used - (theirs.get(id) ?? 0) });
    return counts;
  }

  /** What other gateways say that they booked. Said again it counts once: each only ever counts up. */
  hearCounts(month: string, counts: readonly MonthCount[]): void {
    const now = this.#now();
    if (month !== now.month) return;
    const query = 'SELECT tokens FROM elsewhere WHERE origin = ? AND id = ? AND month = ?';
    for (const { origin, id, tokens } of counts) {
      const [known] = this.ctx.storage.sql.exec<{ tokens: number }>(query, origin, id, month).toArray();
      const more = tokens - (known?.tokens ?? 0);
      if (origin === '' || more <= 0) continue;
      this.#writeElsewhere(origin, id, month, more);
      this.#limiter.bookElsewhere(id, more, now);
    }
    this.#changed();
  }

  #writeElsewhere(origin: string, id: string, month: string, more: number): void {
    const { sql } = this.ctx.storage;
    // Once a month: each deletion reads all counts of all meters. The month before still gets late counts.
    const from = monthOf(Date.now() - 31 * 24 * 60 * 60_000);
    if (this.#elsewhereFrom !== from) sql.exec('DELETE FROM elsewhere WHERE month < ?', from);
    this.#elsewhereFrom = from;
    sql.exec(
      `INSERT INTO elsewhere (origin, id, month, tokens) VALUES (?, ?, ?, ?)
       ON CONFLICT (origin, id, month) DO UPDATE SET tokens = tokens + excluded.tokens`,
      origin,
      id,
      month,
      more,
    );
  }

  #now(): MeterTime {
    return { ms: this.#clock.now(), month: monthOf(Date.now()) };
  }

  /** There may be room for who waits: in the order of coming. */
  #changed(): void {
    for (const waiting of this.#waiting) waiting.again();
  }

  /** Resolves when something changed, or at `until`. */
  #change(until: number): Promise<void> {
    return new Promise((resolve) => {
      const waiting: Waiting = {
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
      // Limits go on in memory: the next save says again what could not be written.
      if (this.ctx.health.failure !== undefined) return this.#save();
      this.#store.save(this.#limiter, this.#now());
    });
  }
}

/** UTC, `2026-11`. @param at milliseconds since the epoch */
function monthOf(at: number): string {
  return new Date(at).toISOString().slice(0, 7);
}
