import { DurableObject } from 'cloudflare:workers';
import { lifecycleRank, type NodeRecord, type RegistryEntry } from '../../shared/lattice/node.ts';
import { readSettings, type Settings } from '../accounts/settings.ts';
import type { Env } from '../env.ts';

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

export interface RegistrySnapshot {
  /** Changes whenever anything below does. */
  tag: string;
  entries: RegistryEntry[];
  settings: Settings;
}

/**
 * Who serves what, as one map of sessions. Its face is small on purpose: publish, suspect, snapshot.
 * Survives eviction: the sessions, in SQLite. Read at start, written on each transition; requests never reach it.
 */
export class RegistryObject extends DurableObject<Env> {
  readonly #sessions = new Map<string, RegistryEntry>();
  readonly #suspectedAt = new Map<string, number>();
  /** Changes with the instance, so that tags of a former one never match. */
  readonly #epoch = crypto.randomUUID();
  #version = 0;
  #settings: Settings | undefined;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS sessions (session TEXT PRIMARY KEY, entry TEXT NOT NULL)');
    for (const row of ctx.storage.sql.exec<{ session: string; entry: string }>('SELECT session, entry FROM sessions')) {
      const entry = JSON.parse(row.entry) as RegistryEntry;
      this.#sessions.set(row.session, entry);
      if (entry.suspected) this.#suspectedAt.set(row.session, Date.parse(entry.updated_at));
    }
  }

  /** A session's own word. A state never goes back, whatever order its words arrive in. */
  publish(publication: Publication): void {
    const { session, provider, cluster, record } = publication;
    const now = new Date().toISOString();
    const known = this.#sessions.get(session);
    if (known !== undefined && isOlder(record, known)) {
      if (known.suspected && record.version === known.version) this.#store({ ...known, suspected: false });
      return;
    }
    this.#store({
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
    const known = this.#sessions.get(session);
    if (known === undefined || known.suspected || known.state === 'LEFT') return;
    this.#suspectedAt.set(session, Date.now());
    this.#store({ ...known, suspected: true, updated_at: new Date().toISOString() });
  }

  /** The path that failed works again. */
  trust(session: string): void {
    const known = this.#sessions.get(session);
    if (known?.suspected) this.#store({ ...known, suspected: false, updated_at: new Date().toISOString() });
  }

  /** A key stopped being valid: travels with the next snapshot. */
  async revokeKey(_hash: string): Promise<void> {
    await this.reloadSettings();
  }

  async reloadSettings(): Promise<void> {
    this.#settings = await readSettings(this.env);
    this.#version++;
  }

  /** The whole map, or null where the caller already has it. */
  async snapshot(tag: string | null): Promise<RegistrySnapshot | null> {
    this.#sweep(Date.now());
    // A store that is down takes no node out of routing: settings follow when it is back.
    if (this.#settings === undefined) await this.reloadSettings().catch(() => {});
    const current = `${this.#epoch}:${this.#version}`;
    if (tag === current) return null;
    const settings = this.#settings ?? { models: {}, revokedKeys: [] };
    return { tag: current, entries: [...this.#sessions.values()], settings };
  }

  #store(entry: RegistryEntry): void {
    if (!entry.suspected) this.#suspectedAt.delete(entry.session);
    this.#sessions.set(entry.session, entry);
    this.ctx.storage.sql.exec(
      'INSERT INTO sessions (session, entry) VALUES (?, ?) ON CONFLICT (session) DO UPDATE SET entry = excluded.entry',
      entry.session,
      JSON.stringify(entry),
    );
    this.#version++;
    if (this.#sessions.size > SESSIONS_MAX) this.#dropOldestLeft();
  }

  #drop(session: string): void {
    this.#sessions.delete(session);
    this.#suspectedAt.delete(session);
    this.ctx.storage.sql.exec('DELETE FROM sessions WHERE session = ?', session);
    this.#version++;
  }

  #dropOldestLeft(): void {
    const left = [...this.#sessions.values()].filter((entry) => entry.state === 'LEFT');
    left.sort((a, b) => a.updated_at.localeCompare(b.updated_at));
    const oldest = left[0];
    if (oldest !== undefined) this.#drop(oldest.session);
  }

  /** Time passes when somebody looks: no timer keeps the object awake. */
  #sweep(now: number): void {
    for (const [session, since] of this.#suspectedAt) {
      const entry = this.#sessions.get(session);
      if (entry === undefined || now - since < SILENT_TO_LEFT_MS) continue;
      this.#suspectedAt.delete(session);
      this.#store({ ...entry, state: 'LEFT', suspected: false, updated_at: new Date(now).toISOString() });
    }
    if (now - this.#sweptAt < 60_000) return;
    this.#sweptAt = now;
    for (const entry of this.#sessions.values()) {
      if (entry.state === 'LEFT' && now - Date.parse(entry.updated_at) > RETENTION_MS) this.#drop(entry.session);
    }
  }

  #sweptAt = 0;
}

/** Ordered by (state, version): a word that is not newer changes nothing. */
function isOlder(record: NodeRecord, known: RegistryEntry): boolean {
  const rank = lifecycleRank(record.state) - lifecycleRank(known.state);
  return rank < 0 || (rank === 0 && record.version <= known.version);
}
