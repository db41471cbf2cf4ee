/**
 * The GPU time of requests. A request's GPU time is the time that it ran at a node, times the node's GPUs, divided at
 * every instant by the number of this caller's requests that were running there. So the GPU seconds of all requests of
 * a caller add up to the time during which the node worked for the caller, times the node's GPUs. Uses no clock:
 * callers pass milliseconds of a monotonic clock.
 *
 * Generalized processor sharing (Parekh and Gallager, 1993): one virtual clock advances by dt divided by the number of
 * running requests.
 */
export class GpuShare {
  #running = 0;
  #virtualMs = 0;
  #at = 0;

  /**
   * Call when a request starts. The returned object gives the request's share so far, in milliseconds of one GPU, at a
   * node with `gpus` GPUs.
   */
  begin(gpus: number, now: number): RequestGpuShare {
    const from = this.#advance(now);
    this.#running++;
    let ended: number | undefined;
    return {
      at: (later) => (ended ?? this.#advance(later) - from) * gpus,
      end: (later) => {
        if (ended !== undefined) return;
        ended = this.#advance(later) - from;
        this.#running--;
      },
    };
  }

  #advance(now: number): number {
    if (this.#running > 0) this.#virtualMs += Math.max(0, now - this.#at) / this.#running;
    this.#at = now;
    return this.#virtualMs;
  }
}

export interface RequestGpuShare {
  /** GPU milliseconds from the start until `now`, or until the request's end. */
  at(now: number): number;
  /** Call when the request has ended. Idempotent. */
  end(now: number): void;
}
