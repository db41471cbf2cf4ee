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
  /** Interactive requests at this engine now. */
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
/** Growth must bring this share more lines a second, or the engine is full. */
const GAIN = 0.02;
const SHRINK = 0.5;
/** Readings until growth that brought nothing is tried again: one reading says little on a busy machine. */
const HOLD = 5;

/**
 * How many lines an engine has in flight: additive increase while the engine gets faster, multiplicative decrease when it is hurt. It does not
 * wait for a refusal: engines queue without limit and refuse nothing.
 */
export class LineWindow {
  readonly #limits: WindowLimits;
  #size = 1;
  /** As TCP begins: twice as many each time, until that brings nothing. One more a second would take an engine of 16 slots a quarter of a minute. */
  #starting = true;
  /** Growth whose effect the next reading shows. */
  #trial: { before: number; linesPerS: number } | undefined;
  #hold = 0;
  #preemptions: number | undefined;

  constructor(limits: WindowLimits) {
    this.#limits = limits;
  }

  /** Lines that may be in flight where no request is. */
  get size(): number {
    return this.#size;
  }

  /** Lines that may be in flight beside so many requests: these take their places at once. One line stays: no batch starves. */
  beside(interactive: number): number {
    return Math.max(1, Math.min(this.#size, this.#most - interactive));
  }

  /** Once a second. */
  read(reading: EngineReading): void {
    const preempted = this.#preempted(reading.preemptions);
    const slow = reading.interactive > 0 && (reading.firstTokenMs ?? 0) > this.#limits.firstTokenLimitMs;
    if (reading.refused > 0 || preempted || slow) {
      this.#size = Math.max(1, Math.floor(this.#size * SHRINK));
      this.#trial = undefined;
      this.#starting = false;
      this.#hold = 0;
      return;
    }
    this.#judge(reading.linesPerS);
    this.#size = Math.min(this.#size, this.#most);
    if (this.#size < this.#most && this.#mayGrow(reading)) {
      this.#trial = { before: this.#size, linesPerS: reading.linesPerS };
      const step = this.#starting ? this.#size : Math.max(1, Math.floor(this.#size / 8));
      this.#size = Math.min(this.#most, this.#size + step);
    }
  }

  /** A second without an end of a line says nothing: lines may take longer. */
  #judge(linesPerS: number): void {
    const trial = this.#trial;
    this.#trial = undefined;
    this.#hold = Math.max(0, this.#hold - 1);
    if (trial === undefined || linesPerS === 0) return;
    // Of a small step half of what it could bring is enough.
    const gain = Math.min(GAIN, (this.#size / trial.before - 1) / 2);
    if (linesPerS > trial.linesPerS * (1 + gain)) return;
    this.#size = Math.min(this.#size, trial.before);
    this.#starting = false;
    this.#hold = HOLD;
  }

  get #most(): number {
    const slots = this.#limits.slots();
    return Math.max(1, slots - Math.max(1, Math.floor(slots * this.#limits.reserve)));
  }

  #mayGrow({ waiting, kvUsed }: EngineReading): boolean {
    return this.#hold === 0 && waiting === 0 && (kvUsed ?? 0) < KV_HIGH;
  }

  #preempted(total: number | undefined): boolean {
    const before = this.#preemptions;
    this.#preemptions = total;
    return total !== undefined && before !== undefined && total > before;
  }
}
