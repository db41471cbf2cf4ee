import type { RegistryEntry } from '../../shared/lattice/node.ts';
import type { Settings } from '../accounts/settings.ts';
import { ChangeLog } from './change-log.ts';

/** What the holder of one tag needs to have the state of another. */
export interface SnapshotDelta {
  tag: string;
  /** Everything is in it: what the holder has and this has not is gone. */
  whole: boolean;
  entries: RegistryEntry[];
  removed: string[];
  /** Present where they changed. */
  settings?: Settings;
}

/** Where snapshots are asked for: the registry object, or the relay of a location. Null: the caller has it already. */
export interface SnapshotSource {
  snapshot(tag: string | null): Promise<SnapshotDelta | null>;
}

/** A state of the registry that is handed on as differences. The registry object has one, and so has each relay. */
export class SnapshotStore {
  readonly #entries = new Map<string, RegistryEntry>();
  readonly #log: ChangeLog;
  #settings: Settings | undefined;
  #settingsAt = 0;

  /** `epoch` names this instance: no tag of another one may match. */
  constructor(epoch: string) {
    this.#log = new ChangeLog(epoch);
  }

  get size(): number {
    return this.#entries.size;
  }

  get settings(): Settings | undefined {
    return this.#settings;
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
    if (this.#entries.delete(session)) this.#log.add(session);
  }

  set(settings: Settings): void {
    this.#settings = settings;
    this.#log.add();
    this.#settingsAt = this.#log.versionOf(this.#log.tag) ?? 0;
  }

  /** Takes over what another store handed on. */
  apply(delta: SnapshotDelta): void {
    if (delta.whole) {
      const kept = new Set(delta.entries.map(({ session }) => session));
      for (const session of this.#entries.keys()) if (!kept.has(session)) this.delete(session);
    }
    for (const entry of delta.entries) this.put(entry);
    for (const session of delta.removed) this.delete(session);
    if (delta.settings !== undefined) this.set(delta.settings);
  }

  /** The difference between `tag` and now. */
  since(tag: string | null): SnapshotDelta | null {
    if (tag === this.#log.tag) return null;
    const version = this.#log.versionOf(tag);
    const settings = this.#settings;
    if (version === undefined) {
      const entries = [...this.#entries.values()];
      return { tag: this.#log.tag, whole: true, entries, removed: [], ...(settings === undefined ? {} : { settings }) };
    }
    const entries: RegistryEntry[] = [];
    const removed: string[] = [];
    for (const session of this.#log.since(version)) {
      const entry = this.#entries.get(session);
      if (entry === undefined) removed.push(session);
      else entries.push(entry);
    }
    const news = this.#settingsAt > version && settings !== undefined ? { settings } : {};
    return { tag: this.#log.tag, whole: false, entries, removed, ...news };
  }
}
