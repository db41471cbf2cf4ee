import type { RegistryEntry } from '../../shared/lattice/node.ts';
import type { Settings } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import { REGISTRY_NAME, type RegistrySnapshot } from './object.ts';

/** A younger view is used as it is. */
const FRESH_MS = 500;
/** An older one is not used without asking. */
const STALE_MS = 5_000;
/** How long a request waits for that. */
const REFRESH_WAIT_MS = 300;

/** The registry as one isolate sees it, with the indexes that a request needs. */
export interface View {
  tag: string;
  entries: readonly RegistryEntry[];
  /** Sessions by the models they serve or served, LEFT ones included: what has an entry here is a known model. */
  byModel: ReadonlyMap<string, readonly RegistryEntry[]>;
  revoked: ReadonlySet<string>;
  settings: Settings;
}

const EMPTY: View = {
  tag: '',
  entries: [],
  byModel: new Map(),
  revoked: new Set(),
  settings: { models: {}, revokedKeys: [] },
};

/**
 * The isolate's copy of the registry. Requests read it without waiting; while they flow it is at most a second old, and an
 * isolate without requests asks nobody.
 */
export class SnapshotCache {
  #view = EMPTY;
  #checkedAt = Number.NEGATIVE_INFINITY;
  #refreshing: Promise<void> | undefined;
  #refreshingSince = 0;

  /**
   * The view for one request. `enough` says whether it answers the request; where it does not (an unknown model, say), or where
   * the view is old, one refresh is waited for, shared by all requests, 300 ms at most.
   */
  get(
    env: Env,
    ctx: { waitUntil(work: Promise<unknown>): void },
    now: number,
    enough: (view: View) => boolean,
  ): View | Promise<View> {
    const age = now - this.#checkedAt;
    if (age < FRESH_MS && enough(this.#view)) return this.#view;
    const refreshed = this.#refresh(env, now);
    ctx.waitUntil(refreshed);
    if (age < STALE_MS && enough(this.#view)) return this.#view;
    return withTimeout(refreshed).then(() => this.#view);
  }

  /** This isolate found a session silent: the view says so at once, the registry's next word replaces it. */
  suspect(session: string, now: number): void {
    const entries = this.#view.entries.map((entry) =>
      entry.session === session ? { ...entry, suspected: true, updated_at: new Date(now).toISOString() } : entry,
    );
    this.#view = index({ tag: '', entries, settings: this.#view.settings });
  }

  #refresh(env: Env, now: number): Promise<void> {
    // A refresh whose request was cancelled never settles; a new request starts another.
    if (this.#refreshing !== undefined && now - this.#refreshingSince < 2 * REFRESH_WAIT_MS) return this.#refreshing;
    this.#refreshingSince = now;
    const refreshing = this.#load(env)
      .then((loaded) => {
        if (loaded !== null) this.#view = index(loaded);
        this.#checkedAt = Date.now();
      })
      .catch(() => {}) // the registry is moving: the view stays, the next request asks again
      .finally(() => {
        if (this.#refreshing === refreshing) this.#refreshing = undefined;
      });
    this.#refreshing = refreshing;
    return refreshing;
  }

  async #load(env: Env): Promise<RegistrySnapshot | null> {
    return env.REGISTRY.getByName(REGISTRY_NAME).snapshot(this.#view.tag || null);
  }
}

function withTimeout(work: Promise<void>): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, REFRESH_WAIT_MS);
    void work.finally(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function index(snapshot: RegistrySnapshot): View {
  const byModel = new Map<string, RegistryEntry[]>();
  for (const entry of snapshot.entries) {
    for (const { id } of entry.models) {
      const sessions = byModel.get(id);
      if (sessions === undefined) byModel.set(id, [entry]);
      else sessions.push(entry);
    }
  }
  const { tag, entries, settings } = snapshot;
  return { tag, entries, byModel, settings, revoked: new Set(settings.revokedKeys) };
}

/** One per isolate. */
export const snapshots = new SnapshotCache();
