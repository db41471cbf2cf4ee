import type { LiveState } from '../../../shared/routing/load.ts';

/**
 * State of sessions that is true for seconds only, handed on with the snapshot. In no lattice and no storage: gone with the object that
 * holds it. The owner bounds it by the sessions that it knows.
 */
export class LiveStates {
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
