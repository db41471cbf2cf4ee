import { GatewayObject } from '../../gateway-object.ts';
import { REGISTRY_NAME } from '../../registry-name.ts';
import { steadyNow } from '../../steady-clock.ts';
import { type SnapshotDelta, SnapshotStore } from '../snapshot-store.ts';

/** The registry object hears from one location this often at most, however many isolates ask there. */
export const RELAY_FRESH_MS = 500;

/** And this often where requests wait for what is not known here yet: a model that just came, or one that nobody has. */
const EAGER_MS = 100;

/**
 * One per Cloudflare location: five hundred isolates that each ask twice a second would be more than one object can answer.
 * Asks only while it is asked. Survives nothing: what it knows it asks for again.
 */
export class RegistryRelay extends GatewayObject {
  readonly #store = new SnapshotStore(crypto.randomUUID());
  #tag: string | null = null;
  #askedAt = Number.NEGATIVE_INFINITY;
  #asking: Promise<void> | undefined;

  /** As the registry object's. Rejects while the registry cannot be asked and nothing is known here. */
  async snapshot(tag: string | null, fresh: boolean): Promise<SnapshotDelta | null> {
    if (fresh) await this.#refreshSince(steadyNow());
    else if (steadyNow() - this.#askedAt >= RELAY_FRESH_MS) await this.#refresh();
    return this.#store.since(tag);
  }

  /** By a question that was not under way at `time`. */
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
      const delta = await this.env.REGISTRY.getByName(REGISTRY_NAME).snapshot(this.#tag);
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
