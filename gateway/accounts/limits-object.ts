import { DurableObject } from 'cloudflare:workers';
import type { Env } from '../env.ts';
import type { Limits } from './limits.ts';
import { Meter, type RateLimits, rateLimitHeaders, type Shortage } from './meter.ts';

interface Reservation {
  /** Of the request. */
  name: string;
  keyId: string;
  key: Limits | undefined;
  project: Limits | undefined;
  /** Estimated from what is known before the body is read. */
  tokens: number;
}

export type Verdict =
  | { granted: true; headers: Record<string, string> }
  | { granted: false; scope: 'key' | 'project'; shortage: Shortage; headers: Record<string, string> };

/** What a request used, as its node's object settles it. */
export interface Settlement {
  name: string;
  keyId: string;
  tokens: number;
  /** Only another count of what is in already. */
  repeated: boolean;
}

/** A client that begins its next request at the last byte of the one before is faster than that one's release. */
const SLOT_WAIT_MS = 250;
const WAITING_MAX = 1_000;
/** Who is never released nor settled (its isolate and its node died) counts as running for so long. */
const LEASE_MS = 60 * 60_000;
const RUNNING_MAX = 100_000;
/** Counts of the running minute are written so long after they changed: writing holds answers back. */
const SAVE_MS = 1_000;
/** Nodes whose last settlement is remembered, so that none counts twice. */
const SOURCE_KEPT_MS = 7 * 24 * 60 * 60_000;
const PROJECT = '';

interface Held extends Pick<Reservation, 'keyId' | 'tokens'> {
  at: number;
  running: boolean;
}

interface Waiting {
  until: number;
  again(): void;
}

/**
 * All limits of one project and its keys, or of one key without a project: whoever asks here is counted exactly, because one
 * thread counts. Survives eviction: what was used in the month, at once; the running minute, but for its last second.
 */
export class LimitsObject extends DurableObject<Env> {
  readonly #meters = new Map<string, Meter>();
  readonly #held = new Map<string, Held>();
  readonly #waiting = new Set<Waiting>();
  #saving: ReturnType<typeof setTimeout> | null = null;
  #sweptAt = 0;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec(`CREATE TABLE IF NOT EXISTS minutes (id TEXT PRIMARY KEY, state TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS months (id TEXT NOT NULL, month TEXT NOT NULL, used INTEGER NOT NULL, PRIMARY KEY (id, month));
      CREATE TABLE IF NOT EXISTS sources (id TEXT PRIMARY KEY, position INTEGER NOT NULL, at INTEGER NOT NULL)`);
  }

  /** Counts a request in, or says why not. */
  async reserve(asked: Reservation): Promise<Verdict> {
    const until = Date.now() + SLOT_WAIT_MS;
    for (;;) {
      const now = Date.now();
      const short = this.#shortage(asked, now);
      if (short === undefined) return this.#grant(asked, now);
      if (short.shortage.kind !== 'concurrent' || now >= until || this.#waiting.size >= WAITING_MAX) {
        return { granted: false, ...short, headers: this.#headers(asked, now) };
      }
      await this.#slot(until);
    }
  }

  #shortage(asked: Reservation, now: number): { scope: 'key' | 'project'; shortage: Shortage } | undefined {
    this.#sweep(now);
    const ofProject = this.#meter(PROJECT).shortage(asked.project, asked, now);
    if (ofProject !== undefined) return { scope: 'project', shortage: ofProject };
    const ofKey = this.#meter(asked.keyId).shortage(asked.key, asked, now);
    return ofKey && { scope: 'key', shortage: ofKey };
  }

  #grant(asked: Reservation, now: number): Verdict {
    for (const meter of this.#both(asked.keyId)) meter.take(asked, now);
    this.#held.set(asked.name, { keyId: asked.keyId, tokens: asked.tokens, at: now, running: true });
    const oldest = this.#held.keys().next().value;
    if (this.#held.size > RUNNING_MAX && oldest !== undefined) this.#forget(oldest);
    this.#save();
    return { granted: true, headers: this.#headers(asked, now) };
  }

  /** The request is over; what it used comes by itself. Without `used` it never began, and nothing will come. */
  release(name: string, used: boolean): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    if (used) this.#stop(held);
    else this.#forget(name);
  }

  /** From a node's object, which says it again until it hears back: `position` counts its words. Durable when it returns. */
  settle(source: string, items: readonly { position: number; settlement: Settlement }[]): void {
    const { sql } = this.ctx.storage;
    const now = Date.now();
    const known = sql.exec<{ position: number }>('SELECT position FROM sources WHERE id = ?', source).toArray()[0];
    let last = known?.position ?? 0;
    for (const { position, settlement } of items) {
      if (position <= last) continue;
      last = position;
      if (!settlement.repeated) this.#settle(settlement, now);
    }
    sql.exec('INSERT OR REPLACE INTO sources (id, position, at) VALUES (?, ?, ?)', source, last, now);
    sql.exec('DELETE FROM sources WHERE at < ?', now - SOURCE_KEPT_MS);
    this.#save();
  }

  /** What a subject used in a month, `2026-11`: for its own page. */
  used(month: string): { id: string; used: number }[] {
    const query = 'SELECT id, used FROM months WHERE month = ?';
    return this.ctx.storage.sql.exec<{ id: string; used: number }>(query, month).toArray();
  }

  #settle({ name, keyId, tokens }: Settlement, now: number): void {
    const held = this.#held.get(name);
    if (held !== undefined) {
      this.#stop(held);
      this.#held.delete(name);
    }
    for (const [id, meter] of [
      [PROJECT, this.#meter(PROJECT)],
      [keyId, this.#meter(keyId)],
    ] as const) {
      meter.settle(held?.tokens ?? 0, tokens, held?.at ?? now, now);
      this.ctx.storage.sql.exec(
        'INSERT OR REPLACE INTO months (id, month, used) VALUES (?, ?, ?)',
        id,
        meter.month,
        meter.used,
      );
    }
  }

  /** Its place is free. */
  #stop(held: Held): void {
    if (!held.running) return;
    held.running = false;
    for (const meter of this.#both(held.keyId)) meter.release();
    for (const waiting of this.#waiting) waiting.again();
  }

  /** As if it had asked for nothing but a request. */
  #forget(name: string): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    this.#stop(held);
    this.#held.delete(name);
    for (const meter of this.#both(held.keyId)) meter.settle(held.tokens, 0, held.at, Date.now());
  }

  /** Resolves when a place is free, or at `until`. */
  #slot(until: number): Promise<void> {
    return new Promise((resolve) => {
      const waiting: Waiting = {
        until,
        again: () => {
          clearTimeout(timer);
          this.#waiting.delete(waiting);
          resolve();
        },
      };
      const timer = setTimeout(() => waiting.again(), until - Date.now());
      this.#waiting.add(waiting);
    });
  }

  #headers(asked: Reservation, now: number): Record<string, string> {
    const left: RateLimits[] = [
      this.#meter(PROJECT).left(asked.project, now),
      this.#meter(asked.keyId).left(asked.key, now),
    ];
    return rateLimitHeaders(left);
  }

  #both(keyId: string): [Meter, Meter] {
    return [this.#meter(PROJECT), this.#meter(keyId)];
  }

  #meter(id: string): Meter {
    const known = this.#meters.get(id);
    if (known !== undefined) return known;
    const { sql } = this.ctx.storage;
    const saved = sql.exec<{ state: string }>('SELECT state FROM minutes WHERE id = ?', id).toArray()[0];
    const meter = new Meter(saved && JSON.parse(saved.state));
    const query = 'SELECT month, used FROM months WHERE id = ? ORDER BY month DESC LIMIT 1';
    const month = sql.exec<{ month: string; used: number }>(query, id).toArray()[0];
    if (month !== undefined) Object.assign(meter, month);
    this.#meters.set(id, meter);
    return meter;
  }

  #sweep(now: number): void {
    if (now - this.#sweptAt < 60_000) return;
    this.#sweptAt = now;
    for (const [name, { at }] of this.#held) {
      if (now - at < LEASE_MS) break; // in the order of coming
      this.#forget(name);
    }
  }

  #save(): void {
    this.#saving ??= setTimeout(() => {
      this.#saving = null;
      const now = Date.now();
      const { sql } = this.ctx.storage;
      for (const [id, meter] of this.#meters) {
        const state = JSON.stringify(meter.state());
        if (!meter.idle(now)) sql.exec('INSERT OR REPLACE INTO minutes (id, state) VALUES (?, ?)', id, state);
        else {
          sql.exec('DELETE FROM minutes WHERE id = ?', id);
          this.#meters.delete(id);
        }
      }
    }, SAVE_MS);
  }
}
