import { DurableObject } from 'cloudflare:workers';
import type { Env } from '../env.ts';
import { REGISTRY_NAME } from './object.ts';
import { type SnapshotDelta, SnapshotStore } from './snapshot-store.ts';

/** The registry object hears from one location this often at most, however many isolates ask there. */
export const RELAY_FRESH_MS = 500;

/**
 * One per Cloudflare location: five hundred isolates that each ask twice a second would be more than one object can answer.
 * Asks only while it is asked. Survives nothing: what it knows it asks for again.
 */
export class RegistryRelay extends DurableObject<Env> {
  readonly #store = new SnapshotStore(crypto.randomUUID());
  #tag: string | null = null;
  #askedAt = Number.NEGATIVE_INFINITY;
  #asking: Promise<void> | undefined;

  /** As the registry object's. Rejects while the registry cannot be asked and nothing is known here. */
  async snapshot(tag: string | null): Promise<SnapshotDelta | null> {
    if (Date.now() - this.#askedAt >= RELAY_FRESH_MS) {
      this.#asking ??= this.#ask().finally(() => {
        this.#asking = undefined;
      });
      await this.#asking;
    }
    return this.#store.since(tag);
  }

  async #ask(): Promise<void> {
    try {
      const delta = await this.env.REGISTRY.getByName(REGISTRY_NAME).snapshot(this.#tag);
      if (delta !== null) {
        this.#store.apply(delta);
        this.#tag = delta.tag;
      }
      this.#askedAt = Date.now();
    } catch (error) {
      if (this.#tag === null) throw error;
    }
  }
}
