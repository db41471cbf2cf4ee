import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import type { LiveState } from '../../shared/routing/node-load.ts';
import type { GatewaySettings } from '../accounts/gateway-settings.ts';
import { immutable } from '../platform/immutable.ts';
import { type Change, ChangeLog, changesAfter } from './change-log.ts';
import type { ListedIssuer } from './listed-issuers.ts';

/**
 * Maximum changed entries, and maximum changed live states, of a delta that is not whole. Reading and applying them
 * takes much less than a millisecond, during which tokens of open streams wait.
 */
const DELTA_MAX = 128;

/**
 * State of sessions that is valid for seconds only, sent with snapshots. It is neither in the lattice nor stored, and
 * is lost with its object. The owner passes only sessions that it knows, which bounds the number of states.
 */
class LiveStates {
  readonly #states = new Map<string, { state: LiveState; version: number }>();
  /**
   * The changes of states, oldest first. A change is out of date if the session's state has a later version. At most
   * half of them are, plus DELTA_MAX.
   */
  #changes: Change[] = [];

  /** Merges `news` into a session's state; `version` grows with each call. */
  put(session: string, news: LiveState, version: number): void {
    const state = immutable({ ...this.#states.get(session)?.state, ...news });
    this.#states.set(session, { state, version });
    this.#changes.push({ session, version });
    if (this.#changes.length > 2 * this.#states.size + DELTA_MAX)
      this.#changes = this.#changes.filter((change) => this.#isCurrent(change));
  }

  #isCurrent({ session, version }: Change): boolean {
    return this.#states.get(session)?.version === version;
  }

  get(session: string): LiveState | undefined {
    return this.#states.get(session)?.state;
  }

  delete(session: string): void {
    this.#states.delete(session);
  }

  /** Returns at most `max` changes after `version`, oldest first. Some may be out of date. */
  after(version: number, max: number): Change[] {
    return changesAfter(this.#changes, version, max);
  }

  /** Returns the states that these changes made, by session; undefined: there are none. */
  madeBy(changes: readonly Change[]): Record<string, LiveState> | undefined {
    const current = changes.filter((change) => this.#isCurrent(change));
    if (current.length === 0) return undefined;
    return Object.fromEntries(current.map(({ session }) => [session, this.get(session) ?? {}]));
  }
}

/**
 * The difference between the states of two tags. Entries and live states are immutable, so that a whole registry of
 * 10,000 nodes need not be copied for each isolate of the same process.
 */
export interface SnapshotDelta {
  tag: string;
  /** True if the delta contains every entry. The receiver then removes all other entries. */
  whole: boolean;
  /** True if there are further changes, which the receiver should read in its next turn. */
  more?: boolean;
  entries: RegistryEntry[];
  removed: string[];
  /** Settings and issuers; absent: unchanged. */
  carried?: SnapshotExtras;
  /** Live state, valid for seconds only, of the sessions for which it changed. */
  live?: Record<string, LiveState>;
}

/** Settings and issuers, which snapshots contain in addition to the sessions. */
interface SnapshotExtras {
  /** The gateway's settings; undefined until D1 has answered. */
  settings?: GatewaySettings;
  issuers: ListedIssuer[];
  /** The gateway's id as a gossip peer. */
  gateway: string;
}

/**
 * A source of snapshots for isolates: the registry object, or the snapshot cache of a location. Null: the caller is up
 * to date. `fresh`: a request waits because the caller's state is not sufficient, so the response must not be older
 * than the call.
 */
export interface SnapshotSource {
  snapshot(tag: string | null, fresh: boolean): Promise<SnapshotDelta | null>;
}

/**
 * The registry's current state with its recent changes, from which isolates get differences. The registry object has a
 * store, and each snapshot cache has a copy of it.
 */
export class SnapshotStore {
  readonly #entries = new Map<string, RegistryEntry>();
  readonly #log: ChangeLog;
  readonly #live = new LiveStates();
  #carried: SnapshotExtras = { issuers: [], gateway: '' };
  #carriedAt = 0;

  /** @param epoch names this instance, so that no tag of another instance matches */
  constructor(epoch: string) {
    this.#log = new ChangeLog(epoch);
  }

  get size(): number {
    return this.#entries.size;
  }

  get carried(): SnapshotExtras {
    return this.#carried;
  }

  get(session: string): RegistryEntry | undefined {
    return this.#entries.get(session);
  }

  entries(): IterableIterator<RegistryEntry> {
    return this.#entries.values();
  }

  put(entry: RegistryEntry): void {
    this.#entries.set(entry.session, immutable(entry));
    this.#log.add(entry.session);
  }

  delete(session: string): void {
    this.#live.delete(session);
    if (this.#entries.delete(session)) this.#log.add(session);
  }

  liveOf(session: string): LiveState {
    return this.#live.get(session) ?? {};
  }

  /** Sets a session's live state. Ignores a session without an entry. */
  setLive(session: string, news: LiveState): void {
    if (!this.#entries.has(session)) return;
    this.#log.add();
    this.#live.put(session, news, this.#log.version);
  }

  set(carried: SnapshotExtras): void {
    this.#carried = { ...this.#carried, ...carried };
    this.#log.add();
    this.#carriedAt = this.#log.versionOf(this.#log.tag) ?? 0;
  }

  /** Applies the delta of another store. */
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

  /** Returns the difference between `tag` and now, or its first part; null: there is none. */
  since(tag: string | null): SnapshotDelta | null {
    if (tag === this.#log.tag) return null;
    const version = this.#log.versionOf(tag);
    const carried = this.#carried;
    if (version === undefined) {
      const entries = [...this.#entries.values()];
      const all = this.#live.after(0, Number.POSITIVE_INFINITY);
      return { tag: this.#log.tag, whole: true, entries, removed: [], carried, ...this.#liveOf(all) };
    }
    const [changes, live] = [this.#log.after(version, DELTA_MAX), this.#live.after(version, DELTA_MAX)];
    const until = Math.min(endOf(changes), endOf(live), this.#log.version);
    const isIncluded = (change: Change) => change.version <= until;
    const entries: RegistryEntry[] = [];
    const removed: string[] = [];
    for (const session of new Set(changes.filter(isIncluded).map((change) => change.session))) {
      const entry = this.#entries.get(session);
      if (entry === undefined) removed.push(session);
      else entries.push(entry);
    }
    return {
      tag: this.#log.tagOf(until),
      whole: false,
      ...(until < this.#log.version && { more: true }),
      entries,
      removed,
      ...(this.#carriedAt > version && { carried }),
      ...this.#liveOf(live.filter(isIncluded)),
    };
  }

  #liveOf(changes: readonly Change[]): Pick<SnapshotDelta, 'live'> {
    const live = this.#live.madeBy(changes);
    return live === undefined ? {} : { live };
  }
}

/** Version of the last of these changes if there may be more changes than these. */
function endOf(changes: readonly Change[]): number {
  return changes.length < DELTA_MAX ? Number.POSITIVE_INFINITY : (changes.at(-1)?.version ?? 0);
}
