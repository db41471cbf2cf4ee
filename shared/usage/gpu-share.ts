/**
 * The GPU time of requests: the node's GPUs times the time that a request ran there, divided at every instant by the
 * number of this caller's requests that were running there. A caller's GPU seconds, summed over all its requests, equal
 * the time during which its node worked for it times the node's GPUs. Uses no clock: callers pass milliseconds of a
 * monotonic clock.
 *
 * Generalized processor sharing (Parekh and Gallager, 1993): one virtual clock that advances by dt divided by the
 * number of running requests.
 */
export class GpuShare {
  #running = 0;
  #virtualMs = 0;
  #at = 0;

  /** A request starts. The returned object gives its share so far, in milliseconds of one GPU, for `gpus` GPUs. */
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
  /** The request ended. Idempotent. */
  end(now: number): void;
}
