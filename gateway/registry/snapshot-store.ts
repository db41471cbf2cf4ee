import type { RegistryEntry } from '../../shared/lattice/node.ts';
import type { LiveState } from '../../shared/routing/load.ts';
import type { GatewaySettings } from '../accounts/settings.ts';
import { ChangeLog } from './change-log.ts';
import type { ListedIssuer } from './issuers.ts';

/**
 * State of sessions that is true for seconds only, handed on with the snapshot. In no lattice and no storage: gone with the object that
 * holds it. The owner bounds it by the sessions that it knows.
 */
class LiveStates {
  /** The session that changed last stands last. */
  readonly #states = new Map<string, { state: LiveState; version: number }>();

  /** `news` replaces what it names; `version` grows with each call. */
  put(session: string, news: LiveState, version: number): void {
    const state = { ...this.#states.get(session)?.state, ...news };
    this.#states.delete(session);
    this.#states.set(session, { state, version });
  }

  get(session: string): LiveState | undefined {
    return this.#states.get(session)?.state;
  }

  delete(session: string): void {
    this.#states.delete(session);
  }

  /** What changed after `version`, by session. */
  since(version: number): Record<string, LiveState> | undefined {
    let changed: Record<string, LiveState> | undefined;
    for (const [session, { state, version: at }] of this.#states) {
      if (at <= version) continue;
      changed ??= {};
      changed[session] = state;
    }
    return changed;
  }
}

/** What the holder of one tag's state needs to get the state of another tag. */
export interface SnapshotDelta {
  tag: string;
  /** The delta has every entry: entries that only the holder has are gone. */
  whole: boolean;
  entries: RegistryEntry[];
  removed: string[];
  /** Present where something of it changed. */
  carried?: Carried;
  /** State that lasts for seconds only, of the sessions where it changed. */
  live?: Record<string, LiveState>;
}

/** What travels with the sessions. */
interface Carried {
  /** Undefined while D1 could not be asked. */
  settings?: GatewaySettings;
  issuers: ListedIssuer[];
  /** The gateway's own name as a gossip peer. */
  gateway: string;
}

/**
 * Where isolates ask for snapshots: the registry object, or the relay of a location. Null: the caller is up to date. `fresh`: a request
 * waits that the caller's state cannot answer, so the answer must not be older than the question.
 */
export interface SnapshotSource {
  snapshot(tag: string | null, fresh: boolean): Promise<SnapshotDelta | null>;
}

/** A state of the registry, handed on as differences. The registry object has one, and each relay has one. */
export class SnapshotStore {
  readonly #entries = new Map<string, RegistryEntry>();
  readonly #log: ChangeLog;
  readonly #live = new LiveStates();
  #carried: Carried = { issuers: [], gateway: '' };
  #carriedAt = 0;

  /** `epoch` names this instance: no tag of another one may match. */
  constructor(epoch: string) {
    this.#log = new ChangeLog(epoch);
  }

  get size(): number {
    return this.#entries.size;
  }

  get carried(): Carried {
    return this.#carried;
  }

  get(session: string): RegistryEntry | undefined {
    return this.#entries.get(session);
  }

  entries(): IterableIterator<RegistryEntry> {
    return this.#entries.values();
  }

  put(entry: RegistryEntry): void {
    this.#entries.set(entry.session, entry);
    this.#log.add(entry.session);
  }

  delete(session: string): void {
    this.#live.delete(session);
    if (this.#entries.delete(session)) this.#log.add(session);
  }

  liveOf(session: string): LiveState {
    return this.#live.get(session) ?? {};
  }

  /** Ignores a session without an entry. */
  setLive(session: string, news: LiveState): void {
    if (!this.#entries.has(session)) return;
    this.#log.add();
    this.#live.put(session, news, this.#log.version);
  }

  set(carried: Carried): void {
    this.#carried = { ...this.#carried, ...carried };
    this.#log.add();
    this.#carriedAt = this.#log.versionOf(this.#log.tag) ?? 0;
  }

  /** Takes over what another store handed on. */
  apply(delta: SnapshotDelta): void {
    if (delta.whole) {
      const kept = new Set(delta.entries.map(({ session }) => session));
      for (const session of this.#entries.keys()) if (!kept.has(session)) this.delete(session);
    }
    for (const entry of delta.entries) this.put(entry);
    for (const session of delta.removed) this.delete(session);
    for (const [session, news] of Object.entries(delta.live ?? {})) this.setLive(session, news);
    if (delta.carried !== undefined) this.set(delta.carried);
  }

  /** The difference between `tag` and now. */
  since(tag: string | null): SnapshotDelta | null {
    if (tag === this.#log.tag) return null;
    const version = this.#log.versionOf(tag);
    const carried = this.#carried;
    if (version === undefined) {
      const entries = [...this.#entries.values()];
      return { tag: this.#log.tag, whole: true, entries, removed: [], carried, ...this.#liveSince(0) };
    }
    const entries: RegistryEntry[] = [];
    const removed: string[] = [];
    for (const session of this.#log.since(version)) {
      const entry = this.#entries.get(session);
      if (entry === undefined) removed.push(session);
      else entries.push(entry);
    }
    const news = this.#carriedAt > version ? { carried } : {};
    return { tag: this.#log.tag, whole: false, entries, removed, ...news, ...this.#liveSince(version) };
  }

  #liveSince(version: number): Pick<SnapshotDelta, 'live'> {
    const live = this.#live.since(version);
    return live === undefined ? {} : { live };
  }
}
