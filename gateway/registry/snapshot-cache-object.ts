import { GatewayObject } from '../platform/gateway-object.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { type SnapshotDelta, SnapshotStore } from './snapshot-store.ts';

/** Minimum interval between two requests to the registry object from one location, for any number of isolates. */
export const SNAPSHOT_FRESH_MS = 500;

/** The minimum interval while requests wait for an unknown model, which may just have been registered. */
const FAST_POLL_MS = 100;

/**
 * The snapshot cache of one Cloudflare location. One registry object could not answer five hundred isolates that each
 * ask twice a second. The cache reads only while isolates ask. Nothing is stored: after an eviction it reads the whole
 * registry again.
 */
export class SnapshotCacheObject extends GatewayObject {
  readonly #store = new SnapshotStore(crypto.randomUUID());
  #tag: string | null = null;
  #askedAt = Number.NEGATIVE_INFINITY;
  #asking: Promise<void> | undefined;

  /**
   * Returns the changes since `tag`, or null if there are none. `fresh`: as for SnapshotSource. Rejects if the registry
   * cannot be reached and nothing is cached here.
   */
  async snapshot(tag: string | null, fresh: boolean): Promise<SnapshotDelta | null> {
    if (fresh) await this.#refreshSince(steadyNow());
    else if (steadyNow() - this.#askedAt >= SNAPSHOT_FRESH_MS) await this.#refresh();
    return this.#store.since(tag);
  }

  /** Waits for a read that began at or after `time`. */
  async #refreshSince(time: number): Promise<void> {
    await this.#asking;
    const early = this.#askedAt + FAST_POLL_MS - steadyNow();
    if (this.#askedAt < time && early > 0) await new Promise((resolve) => setTimeout(resolve, early));
    if (this.#askedAt < time) await this.#refresh();
  }

  #refresh(): Promise<void> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  async #ask(): Promise<void> {
    const now = steadyNow();
    try {
      let delta: SnapshotDelta | null;
      do {
        delta = await this.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).snapshot(this.#tag);
        if (delta === null) break;
        this.#store.apply(delta);
        this.#tag = delta.tag;
      } while (delta.more === true);
      this.#askedAt = now;
    } catch (error) {
      if (this.#tag === null) throw error;
    }
  }
}
