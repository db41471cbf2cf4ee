import { DurableObject } from 'cloudflare:workers';
import { lifecycleRank, type NodeRecord, type RegistryEntry } from '../../shared/lattice/node.ts';
import { readSettings } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import { type SnapshotDelta, SnapshotStore } from './snapshot-store.ts';

/** There is one registry object per gateway. */
export const REGISTRY_NAME = 'registry';

/** Until issuers exist every session belongs to the gateway's own. */
export const LOCAL_ISSUER = 'local';

/** A session that stays silent this long is LEFT; coming back later is a new session. */
const SILENT_TO_LEFT_MS = 10 * 60_000;

/** LEFT sessions are shown, and the models they served are known, this long. */
const RETENTION_MS = 24 * 60 * 60_000;

/** Sessions kept, LEFT ones included; the oldest LEFT make room. */
const SESSIONS_MAX = 20_000;

export interface Publication {
  session: string;
  provider: string;
  cluster: string;
  record: NodeRecord;
}

/**
 * Who serves what, as one map of sessions. Its face is small on purpose: publish, suspect, snapshot.
 * Survives eviction: the sessions, in SQLite. Read at start, written on each transition; requests never reach it.
 */
export class RegistryObject extends DurableObject<Env> {
  readonly #store = new SnapshotStore(crypto.randomUUID());
  readonly #suspectedAt = new Map<string, number>();

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS sessions (session TEXT PRIMARY KEY, entry TEXT NOT NULL)');
    for (const row of ctx.storage.sql.exec<{ session: string; entry: string }>('SELECT session, entry FROM sessions')) {
      const entry = JSON.parse(row.entry) as RegistryEntry;
      this.#store.put(entry);
      if (entry.suspected) this.#suspectedAt.set(row.session, Date.parse(entry.updated_at));
    }
  }

  /** A session's own word. A state never goes back, whatever order its words arrive in. */
  publish(publication: Publication): void {
    const { session, provider, cluster, record } = publication;
    const now = new Date().toISOString();
    const known = this.#store.get(session);
    if (known !== undefined && isOlder(record, known)) {
      if (known.suspected && record.version === known.version) this.#keep({ ...known, suspected: false });
      return;
    }
    this.#keep({
      ...record,
      session,
      issuer: LOCAL_ISSUER,
      provider,
      cluster,
      suspected: false,
      joined_at: known?.joined_at ?? now,
      updated_at: now,
    });
  }

  /** A path to the session failed: not routed to until it publishes again. */
  suspect(session: string, _reason: string): void {
    const known = this.#store.get(session);
    if (known === undefined || known.suspected || known.state === 'LEFT') return;
    this.#suspectedAt.set(session, Date.now());
    this.#keep({ ...known, suspected: true, updated_at: new Date().toISOString() });
  }

  /** The path that failed works again. */
  trust(session: string): void {
    const known = this.#store.get(session);
    if (known?.suspected) this.#keep({ ...known, suspected: false, updated_at: new Date().toISOString() });
  }

  async reloadSettings(): Promise<void> {
    this.#store.set(await readSettings(this.env));
  }

  /** What changed since `tag`, or null where the caller has it already. */
  async snapshot(tag: string | null): Promise<SnapshotDelta | null> {
    this.#snapshots++;
    this.#sweep(Date.now());
    // A store that is down takes no node out of routing: settings follow when it is back.
    if (this.#store.settings === undefined) await this.reloadSettings().catch(() => {});
    return this.#store.since(tag);
  }

  /** Answers: enough to know that it can. What it was asked since it woke is counted. */
  ready(): { sessions: number; snapshots: number } {
    return { sessions: this.#store.size, snapshots: this.#snapshots };
  }

  #keep(entry: RegistryEntry): void {
    if (!entry.suspected) this.#suspectedAt.delete(entry.session);
    this.#store.put(entry);
    this.ctx.storage.sql.exec(
      'INSERT INTO sessions (session, entry) VALUES (?, ?) ON CONFLICT (session) DO UPDATE SET entry = excluded.entry',
      entry.session,
      JSON.stringify(entry),
    );
    if (this.#store.size > SESSIONS_MAX) this.#dropOldestLeft();
  }

  #drop(session: string): void {
    this.#store.delete(session);
    this.#suspectedAt.delete(session);
    this.ctx.storage.sql.exec('DELETE FROM sessions WHERE session = ?', session);
  }

  #dropOldestLeft(): void {
    const left = [...this.#store.entries()].filter((entry) => entry.state === 'LEFT');
    left.sort((a, b) => a.updated_at.localeCompare(b.updated_at));
    const oldest = left[0];
    if (oldest !== undefined) this.#drop(oldest.session);
  }

  /** Time passes when somebody looks: no timer keeps the object awake. */
  #sweep(now: number): void {
    for (const [session, since] of this.#suspectedAt) {
      const entry = this.#store.get(session);
      if (entry === undefined || now - since < SILENT_TO_LEFT_MS) continue;
      this.#suspectedAt.delete(session);
      this.#keep({ ...entry, state: 'LEFT', suspected: false, updated_at: new Date(now).toISOString() });
    }
    if (now - this.#sweptAt < 60_000) return;
    this.#sweptAt = now;
    for (const entry of this.#store.entries()) {
      if (entry.state === 'LEFT' && now - Date.parse(entry.updated_at) > RETENTION_MS) this.#drop(entry.session);
    }
  }

  #sweptAt = 0;
  #snapshots = 0;
}

/** Ordered by (state, version): a word that is not newer changes nothing. */
function isOlder(record: NodeRecord, known: RegistryEntry): boolean {
  const rank = lifecycleRank(record.state) - lifecycleRank(known.state);
  return rank < 0 || (rank === 0 && record.version <= known.version);
}
