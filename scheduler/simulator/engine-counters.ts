/** Counts the work of an engine. */
export class EngineCounters {
  /** Steps; of a pipeline: of all micro-batches. */
  steps = 0;
  decodeTokens = 0;
  prefillTokens = 0;
  /** Number of prompt tokens that the prefix cache held. */
  cachedTokens = 0;
  preemptions = 0;
  refused = 0;
  /** Seconds in which a step was running. */
  busy = 0;
  /** Seconds that the arithmetic of all steps would take at the GPU's peak. */
  peakCompute = 0;
  /** Integral of the share of used blocks over the time in which a step was running. */
  kvBusy = 0;
  kvPeak = 0;
  /** Until when a step has been running, seconds. */
  #until = 0;

  /** Counts the time from `begin` to `end` in which no earlier step was running. `used`: share of the used blocks. */
  ran(begin: number, end: number, used: number): void {
    const seconds = Math.max(0, end - Math.max(begin, this.#until));
    this.#until = Math.max(end, this.#until);
    this.busy += seconds;
    this.kvBusy += used * seconds;
    if (used > this.kvPeak) this.kvPeak = used;
  }
}
