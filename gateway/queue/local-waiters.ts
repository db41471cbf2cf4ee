/** Bytes of bodies that this isolate keeps for requests that wait for a node; beyond it the queue is full. */
const KEPT_MAX_BYTES = 32 * 1024 * 1024;

/**
 * Requests of this isolate that wait. While one waits, a later request for the same nodes queues behind it without a try of its own:
 * else newcomers would take every place that becomes free.
 */
class LocalWaiters {
  /** By model and scope; those that wait, so bounded by the queues' places. */
  readonly #counts = new Map<string, number>();
  #bytes = 0;

  /** Whether a request waits already. `scope` is asked for only where any does. */
  has(model: string, scope: () => string): boolean {
    return this.#counts.size > 0 && this.#counts.has(nameOf(model, scope()));
  }

  /** Undefined where its body is too much. Returns how to leave, which is idempotent. */
  enter(model: string, scope: string, bytes: number): (() => void) | undefined {
    if (this.#bytes + bytes > KEPT_MAX_BYTES) return undefined;
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

/** One per isolate. */
export const localWaiters = new LocalWaiters();
