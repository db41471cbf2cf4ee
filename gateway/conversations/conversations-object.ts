/**
 * The conversations that a person keeps at the gateway: one object per person. The browser encrypts them with a key that
 * the gateway never has, so the object knows only ids, sizes and times.
 */
import type { Env } from '../env.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { SHARES_MAX, SharedBoxes, type SharedConversation } from './shared-boxes.ts';

/** Maximum bytes of one conversation: a row of SQLite on Cloudflare has at most 2 MB. */
export const BOX_MAX_BYTES = 1_900_000;
/** Maximum conversations of one person. */
export const BOXES_MAX = 2_000;
/** A deletion is remembered for this time, so that a browser that was away also deletes. */
const DELETED_MS = 90 * 24 * 60 * 60_000;
/** Maximum remembered deletions; the oldest are forgotten. */
const DELETED_MAX = 4_000;
/** How long the object waits until it looks for old deletions again. */
const SWEEP_MS = 24 * 60 * 60_000;

export interface KeptConversation {
  id: string;
  revision: number;
  /** Encrypted bytes; 0 if it was deleted. */
  bytes: number;
  deleted: boolean;
}

export interface KeptList {
  /** What the browser needs to check a passphrase; null: the person keeps no conversations here. */
  key: string | null;
  /** The newest revision. A list after it has only later changes. */
  revision: number;
  conversations: KeptConversation[];
  bytes: number;
}

export type WriteResult = { revision: number } | 'conflict' | 'full';

type Row = { id: string; revision: number; bytes: number; deleted: number };

export class ConversationsObject extends GatewayObject {
  readonly #shared: SharedBoxes;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec(`
      CREATE TABLE IF NOT EXISTS boxes (id TEXT PRIMARY KEY, revision INTEGER NOT NULL, bytes INTEGER NOT NULL,
        box BLOB, at INTEGER NOT NULL);
      CREATE UNIQUE INDEX IF NOT EXISTS boxes_revision ON boxes (revision)`);
    this.#shared = new SharedBoxes(ctx.storage);
  }

  /** Lists what changed after a revision. */
  list(after: number): KeptList {
    const { sql, kv } = this.ctx.storage;
    const rows = sql
      .exec<Row>(
        'SELECT id, revision, bytes, box IS NULL AS deleted FROM boxes WHERE revision > ? ORDER BY revision',
        after,
      )
      .toArray();
    const conversations = rows.map(({ deleted, ...row }) => ({ ...row, deleted: deleted === 1 }));
    return { key: kv.get<string>('key') ?? null, revision: this.#revision, conversations, bytes: this.#use().bytes };
  }

  /** Stores what the browser needs to check a passphrase. False: there is one already. */
  begin(key: string): boolean {
    const { kv } = this.ctx.storage;
    if (kv.get<string>('key') !== undefined) return false;
    kv.put('key', key);
    return true;
  }

  read(id: string): { revision: number; box: Uint8Array } | undefined {
    const query = 'SELECT revision, box FROM boxes WHERE id = ? AND box IS NOT NULL';
    const [row] = this.ctx.storage.sql.exec<{ revision: number; box: ArrayBuffer }>(query, id).toArray();
    return row && { revision: row.revision, box: new Uint8Array(row.box) };
  }

  /**
   * Stores a conversation. Without a key it is a conflict: a page may still exchange while everything is deleted.
   * @param base the revision that the browser changed; 0: the conversation is new, or the browser deletes its deletion
   * @param maxBytes of all conversations of this person
   */
  write(id: string, base: number, box: Uint8Array, maxBytes: number): WriteResult {
    const { sql, kv } = this.ctx.storage;
    if (kv.get<string>('key') === undefined) return 'conflict';
    const before = this.#find(id);
    if (base !== (before?.deleted === 0 ? before.revision : 0)) return 'conflict';
    const { bytes, boxes } = this.#use();
    const isNew = before === undefined || before.deleted === 1;
    if (bytes - (before?.bytes ?? 0) + box.length > maxBytes || (isNew && boxes >= BOXES_MAX)) return 'full';
    const revision = this.#next();
    sql.exec('INSERT OR REPLACE INTO boxes VALUES (?, ?, ?, ?, ?)', id, revision, box.length, box, this.#now);
    return { revision };
  }

  /** Deletes a conversation and remembers the deletion. Undefined: there is none. */
  async remove(id: string): Promise<number | undefined> {
    const before = this.#find(id);
    if (before === undefined || before.deleted === 1) return undefined;
    const { storage } = this.ctx;
    const { sql } = storage;
    const revision = this.#next();
    sql.exec('UPDATE boxes SET revision = ?, bytes = 0, box = NULL, at = ? WHERE id = ?', revision, this.#now, id);
    const oldest = 'SELECT id FROM boxes WHERE box IS NULL ORDER BY revision DESC LIMIT -1 OFFSET ?';
    sql.exec(`DELETE FROM boxes WHERE id IN (${oldest})`, DELETED_MAX);
    await this.#ringAt(this.#now + SWEEP_MS);
    return revision;
  }

  shares(): SharedConversation[] {
    return this.#shared.list(this.#now);
  }

  /** Shares a conversation until `expiresAt`. @param maxBytes of all conversations and shares of this person */
  async share(
    id: string,
    box: Uint8Array,
    expiresAt: number,
    maxBytes: number,
  ): Promise<'shared' | 'conflict' | 'full'> {
    this.#shared.sweep(this.#now);
    if (this.#use().bytes + box.length > maxBytes || this.#shared.use.shares >= SHARES_MAX) return 'full';
    if (!this.#shared.add(id, box, expiresAt)) return 'conflict';
    await this.#ringAt(expiresAt);
    return 'shared';
  }

  readShare(id: string): Uint8Array | undefined {
    return this.#shared.read(id, this.#now);
  }

  unshare(id: string): boolean {
    return this.#shared.remove(id);
  }

  /** Deletes everything, with the key. */
  clear(): void {
    const { sql, kv } = this.ctx.storage;
    this.#shared.clear();
    sql.exec('DELETE FROM boxes');
    kv.delete('key');
    kv.delete('revision');
  }

  /** Forgets old deletions, and shares that have ended. */
  async alarm(): Promise<void> {
    const nextShare = this.#shared.sweep(this.#now) ?? Number.POSITIVE_INFINITY;
    const { sql } = this.ctx.storage;
    sql.exec('DELETE FROM boxes WHERE box IS NULL AND at < ?', this.#now - DELETED_MS);
    const [left] = sql.exec<{ n: number }>('SELECT count(*) AS n FROM boxes WHERE box IS NULL').toArray();
    const next = Math.min(nextShare, (left?.n ?? 0) > 0 ? this.#now + SWEEP_MS : Number.POSITIVE_INFINITY);
    if (Number.isFinite(next)) await this.ctx.storage.setAlarm(next);
  }

  /** Sets the alarm, unless an earlier one is set. */
  async #ringAt(at: number): Promise<void> {
    const alarm = await this.ctx.storage.getAlarm();
    if (alarm === null || alarm > at) await this.ctx.storage.setAlarm(at);
  }

  get #now(): number {
    return this.ctx.clock.now();
  }

  get #revision(): number {
    return this.ctx.storage.kv.get<number>('revision') ?? 0;
  }

  #next(): number {
    const revision = this.#revision + 1;
    this.ctx.storage.kv.put('revision', revision);
    return revision;
  }

  #find(id: string): Row | undefined {
    const query = 'SELECT id, revision, bytes, box IS NULL AS deleted FROM boxes WHERE id = ?';
    return this.ctx.storage.sql.exec<Row>(query, id).toArray()[0];
  }

  #use(): { bytes: number; boxes: number } {
    const query = 'SELECT coalesce(sum(bytes), 0) AS bytes, count(box) AS boxes FROM boxes';
    const own = this.ctx.storage.sql.exec<{ bytes: number; boxes: number }>(query).one();
    return { ...own, bytes: own.bytes + this.#shared.use.bytes };
  }
}
