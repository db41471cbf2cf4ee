import type { Fluid, FluidLike } from '../simulator/fluid-replica.ts';

/**
 * The averages of a disaggregated pair: the slowest of its two engines and the link bounds the throughput, and
 * latencies add up.
 */
export class FluidPair implements FluidLike {
  readonly isPair = true;
  readonly #prefill: Fluid;
  readonly #decode: Fluid;
  readonly #handoverS: number;

  /** `handoverS`: mean seconds to transfer a request's keys and values over the link. */
  constructor(prefill: Fluid, decode: Fluid, handoverS: number) {
    this.#prefill = prefill;
    this.#decode = decode;
    this.#handoverS = handoverS;
  }

  get maxSequences(): number {
    return this.#decode.maxSequences;
  }

  get batchMax(): number {
    return this.#decode.batchMax;
  }

  saturated(): { rate: number } {
    return {
      rate: Math.min(this.#prefill.saturated().rate, this.#decode.saturated().rate, 1 / this.#handoverS),
    };
  }

  unqueued(rate: number): { latencyS: number } {
    return {
      latencyS: this.#prefill.unqueued(rate).latencyS + this.#handoverS + this.#decode.unqueued(rate).latencyS,
    };
  }
}
