import { GatewayObject } from '../../platform/gateway-object.ts';
import { REGISTRY_OBJECT_NAME } from '../../platform/registry-object-name.ts';
import { steadyNow } from '../../platform/steady-clock.ts';
import { type SnapshotDelta, SnapshotStore } from '../snapshot-store.ts';

/** The registry object hears from one location this often at most, however many isolates ask there. */
export const SNAPSHOT_FRESH_MS = 500;

/** And this often if requests wait for a model that is not known here: it has just come, or no node has it. */
const EAGER_MS = 100;

/**
 * One per Cloudflare location: one object cannot answer five hundred isolates that each ask twice a second. Asks only while isolates ask.
 * Survives nothing: it asks the registry again for all that it knew.
 */
export class RegistryRelay extends GatewayObject {
  readonly #store = new SnapshotStore(crypto.randomUUID());
  #tag: string | null = null;
  #askedAt = Number.NEGATIVE_INFINITY;
  #asking: Promise<void> | undefined;

  /** As the registry object's `snapshot`. Rejects while the registry cannot be asked and nothing is known here. */
  async snapshot(tag: string | null, fresh: boolean): Promise<SnapshotDelta | null> {
    if (fresh) await this.#refreshSince(steadyNow());
    else if (steadyNow() - this.#askedAt >= SNAPSHOT_FRESH_MS) await this.#refresh();
    return this.#store.since(tag);
  }

  /** Refreshes by a question that begins at or after `time`. */
  async #refreshSince(time: number): Promise<void> {
    await this.#asking;
    const early = this.#askedAt + EAGER_MS - steadyNow();
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
      const delta = await this.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).snapshot(this.#tag);
      if (delta !== null) {
        this.#store.apply(delta);
        this.#tag = delta.tag;
      }
      this.#askedAt = now;
    } catch (error) {
      if (this.#tag === null) throw error;
    }
  }
}
