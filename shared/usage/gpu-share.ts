/**
 * The GPU time of requests: the node's GPUs times the time that a request ran there, at every instant divided by the number of requests of
 * this asker that ran there then. In sum over its requests, an asker's GPU seconds are the seconds in which its node worked for it, times
 * the node's GPUs. Pure: times are handed in, in milliseconds of a clock that never goes back.
 *
 * Generalized processor sharing (Parekh and Gallager, 1993): one virtual clock, which advances by dt over the number of those that run.
 */
export class GpuShare {
  #running = 0;
  #virtualMs = 0;
  #at = 0;

  /** One more runs. What it returns gives its share until now, in milliseconds of one GPU, for so many `gpus`. */
  begin(gpus: number, now: number): ShareOfOne {
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

export interface ShareOfOne {
  /** GPU milliseconds until `now`, or until its end. */
  at(now: number): number;
  /** It runs no more. Idempotent. */
  end(now: number): void;
}
