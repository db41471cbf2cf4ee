/** What the agent reads of its engine once a second. Absent: the engine does not say. */
export interface EngineReading {
  running: number;
  /** Requests in the engine's own queue. */
  waiting: number;
  /** Share of the KV cache in use, 0 to 1. */
  kvUsed?: number;
  /** Since the engine began. */
  preemptions?: number;
  /** Lines that ended in the last second. */
  linesPerS: number;
  /** Answers 429 or 5xx in the last second. */
  refused: number;
  /** Interactive requests at this engine now: running, or waiting for it at the gateway. */
  interactive: number;
  /** Slowest first token of an interactive request in the last second. */
  firstTokenMs?: number;
}

export interface WindowLimits {
  /** Sequences that the engine of this moment runs at once (`max_num_seqs`). */
  slots(): number;
  /** Share of the slots that batches leave to interactive requests. */
  reserve: number;
  /** Interactive requests above this first token shrink the window. */
  firstTokenLimitMs: number;
}

/** Above this share of the KV cache an engine soon preempts. */
const KV_HIGH = 0.85;
/** Growth must bring this much more lines a second, or the engine is full. */
const GAIN = 1.02;
const SHRINK = 0.5;

/**
 * How many lines an engine has in flight: additive increase while the engine gets faster, multiplicative decrease when it is hurt. It does not
 * wait for a refusal: engines queue without limit and refuse nothing.
 */
export class LineWindow {
  readonly #limits: WindowLimits;
  #size = 1;
  #bestLinesPerS = 0;
  #preemptions: number | undefined;

  constructor(limits: WindowLimits) {
    this.#limits = limits;
  }

  /** Lines that may be in flight now. */
  get size(): number {
    return this.#size;
  }

  /** Once a second. */
  read(reading: EngineReading): number {
    const preempted = this.#preempted(reading.preemptions);
    const slow = reading.interactive > 0 && (reading.firstTokenMs ?? 0) > this.#limits.firstTokenLimitMs;
    if (reading.refused > 0 || preempted || slow) {
      this.#size = Math.max(1, Math.floor(this.#size * SHRINK));
      this.#bestLinesPerS = 0;
      return this.#size;
    }
    const most = this.#most(reading.interactive);
    if (this.#size > most) this.#size = most;
    else if (this.#mayGrow(reading)) this.#size = Math.min(most, this.#size + Math.max(1, Math.floor(this.#size / 8)));
    this.#bestLinesPerS = Math.max(this.#bestLinesPerS, reading.linesPerS);
    return this.#size;
  }

  /** The reserve is kept free, and interactive requests take their places out of what is left. One line stays: no batch starves. */
  #most(interactive: number): number {
    const { reserve } = this.#limits;
    const slots = this.#limits.slots();
    const kept = Math.max(1, Math.ceil(slots * reserve));
    return Math.max(1, slots - kept - interactive);
  }

  #mayGrow({ waiting, kvUsed, linesPerS }: EngineReading): boolean {
    if (waiting > 0 || (kvUsed ?? 0) >= KV_HIGH) return false;
    return this.#bestLinesPerS === 0 || linesPerS === 0 || linesPerS > this.#bestLinesPerS * GAIN;
  }

  #preempted(total: number | undefined): boolean {
    const before = this.#preemptions;
    this.#preemptions = total;
    return total !== undefined && before !== undefined && total > before;
  }
}
