/**
 * Maximum bytes of bodies that this isolate keeps for requests that wait for a node. Above this maximum, requests are
 * refused as if the queue were full.
 */
const BODIES_MAX_BYTES = 32 * 1024 * 1024;

/**
 * The waiting requests of this isolate. If a request waits, a later request for the same nodes joins the queue without
 * an attempt. Otherwise later requests would take each node that becomes free, and the first would wait forever.
 */
class LocalWaiters {
  /** Number of waiting requests by model and scope. Bounded by the queues' slots. */
  readonly #counts = new Map<string, number>();
  #bytes = 0;

  /**
   * True if a request for the same nodes waits already. `scope` is only called if this isolate has a waiting request.
   */
  has(model: string, scope: () => string): boolean {
    return this.#counts.size > 0 && this.#counts.has(nameOf(model, scope()));
  }

  /**
   * Adds a waiting request. Returns an idempotent function that removes it. Undefined: the bodies would exceed
   * BODIES_MAX_BYTES.
   */
  enter(model: string, scope: string, bytes: number): (() => void) | undefined {
    if (this.#bytes + bytes > BODIES_MAX_BYTES) return undefined;
    const name = nameOf(model, scope);
    this.#bytes += bytes;
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1);
    let over = false;
    return () => {
      if (over) return;
      over = true;
      this.#bytes -= bytes;
      const left = (this.#counts.get(name) ?? 1) - 1;
      if (left > 0) this.#counts.set(name, left);
      else this.#counts.delete(name);
    };
  }
}

function nameOf(model: string, scope: string): string {
  return `${model}\n${scope}`;
}

/** The waiting requests of this isolate. */
export const localWaiters = new LocalWaiters();
