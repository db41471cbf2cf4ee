import { type MicroBatchTimes, slowestStage } from '../roofline/pipeline-stages.ts';

/** Ways through the stages that differ by less count as equal. */
const SAME_WAY = 0.99;

/**
 * When the stages of a pipeline are free. A micro-batch passes the stages one after another, and each of them processes
 * one micro-batch at a time, in order. While a stage has none, it is a bubble.
 */
export class PipelineClock {
  readonly #shares: readonly number[];
  readonly #free: Float64Array;

  /** `shares`: share of the layers that each stage holds. */
  constructor(shares: readonly number[]) {
    this.#shares = shares;
    this.#free = new Float64Array(shares.length);
  }

  /** Sends a micro-batch that is scheduled at `at` through all stages, and returns when its tokens are known. */
  pass(at: number, { host, layers, head, hop }: MicroBatchTimes): number {
    let time = at;
    const last = this.#free.length - 1;
    for (let stage = 0; stage <= last; stage++) {
      const begin = Math.max(time + (stage > 0 ? hop : 0), this.#free[stage] ?? 0);
      time = begin + host + (this.#shares[stage] ?? 0) * layers + (stage === last ? head : 0);
      this.#free[stage] = time;
    }
    return time;
  }

  /** Moves all times by `seconds`, in which the pipeline repeats its steps. */
  leap(seconds: number): void {
    for (let stage = 0; stage < this.#free.length; stage++) this.#free[stage] = (this.#free[stage] ?? 0) + seconds;
  }

  /**
   * Seconds of a round, in which each of these micro-batches makes one step: as long as the busiest stage works, or as
   * the longest way through all stages.
   */
  roundSeconds(batches: readonly MicroBatchTimes[]): number {
    return Math.max(this.#busiestSeconds(batches), ...batches.map((one) => this.#waySeconds(one)));
  }

  /**
   * True if these micro-batches make their steps in turn: a stage is always busy, or all need the same time. Otherwise a
   * small one makes more steps than a large one.
   */
  inTurn(batches: readonly MicroBatchTimes[]): boolean {
    const ways = batches.map((one) => this.#waySeconds(one));
    const longest = Math.max(...ways);
    return this.#busiestSeconds(batches) >= longest || Math.min(...ways) >= SAME_WAY * longest;
  }

  #busiestSeconds(batches: readonly MicroBatchTimes[]): number {
    let [host, layers, head] = [0, 0, 0];
    for (const one of batches) {
      host += one.host;
      layers += one.layers;
      head += one.head;
    }
    return host + slowestStage(this.#shares, layers, head);
  }

  #waySeconds({ host, layers, head, hop }: MicroBatchTimes): number {
    const stages = this.#shares.length;
    return stages * host + layers + head + (stages - 1) * hop;
  }
}
