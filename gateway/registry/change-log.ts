/** Records which sessions changed since a version, so that snapshots can be sent as differences. */

/** Maximum changes. A reader that is further behind gets the whole map, which is smaller. */
const CHANGES_MAX = 20_000;

export interface Change {
  version: number;
  session: string;
}

/** Returns at most `max` of the changes after `version`. `changes` is in the order of the versions. */
export function changesAfter(changes: readonly Change[], version: number, max: number): Change[] {
  let [low, high] = [0, changes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((changes[middle]?.version ?? 0) > version) high = middle;
    else low = middle + 1;
  }
  return changes.slice(low, low + max);
}

/**
 * A version grows by one with each change. A tag names a version of this log only, so tags of a previous instance never
 * match.
 */
export class ChangeLog {
  readonly #epoch: string;
  #version = 0;
  /** Changes, oldest first. */
  #changes: Change[] = [];
  /** Changes up to this version were dropped. */
  #forgotten = 0;

  constructor(epoch: string) {
    this.#epoch = epoch;
  }

  get tag(): string {
    return this.tagOf(this.#version);
  }

  tagOf(version: number): string {
    return `${this.#epoch}:${version}`;
  }

  get version(): number {
    return this.#version;
  }

  /** Records that a session changed. Without an argument: something else in the snapshot changed. */
  add(session?: string): void {
    this.#version++;
    if (session === undefined) return;
    this.#changes.push({ version: this.#version, session });
    if (this.#changes.length <= CHANGES_MAX) return;
    const kept = this.#changes.slice(CHANGES_MAX / 2);
    this.#forgotten = (kept[0]?.version ?? this.#version) - 1;
    this.#changes = kept;
  }

  /** Returns the version of a tag; undefined if the tag is from another log, or if changes after it were dropped. */
  versionOf(tag: string | null): number | undefined {
    if (tag === null || !tag.startsWith(`${this.#epoch}:`)) return undefined;
    const version = Number(tag.slice(this.#epoch.length + 1));
    const known = Number.isSafeInteger(version) && version >= this.#forgotten && version <= this.#version;
    return known ? version : undefined;
  }

  /**
   * Returns at most `max` changes after `version`, oldest first. The cost grows with their number, not with all
   * sessions.
   */
  after(version: number, max: number): Change[] {
    return changesAfter(this.#changes, version, max);
  }
}
