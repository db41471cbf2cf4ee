/** What the agent reads from its engine once a second. A member is absent if the engine does not report it. */
export interface EngineReading {
  running: number;
  /** Number of requests in the engine's queue. */
  waiting: number;
  /** Share of the KV cache in use, from 0 to 1. */
  kvUsed?: number;
  /** Number of preemptions since the engine started. */
  preemptions?: number;
  /** Number of lines that finished in the last second. */
  linesPerS: number;
  /** Number of 429 and 5xx answers in the last second. */
  refused: number;
  /** Number of interactive requests now at this engine. */
  interactive: number;
  /** Slowest time to first token of an interactive request in the last second, in milliseconds. */
  firstTokenMs?: number;
}

interface WindowLimits {
  /** Number of sequences that the current engine runs concurrently (`max_num_seqs`). */
  slots(): number;
  /** Share of the slots that batches leave to interactive requests. */
  reserve: number;
  /** If an interactive request waits longer than this for its first token, the number of lines is reduced. */
  firstTokenLimitMs: number;
}

/** Above this share of the KV cache an engine will soon preempt sequences. */
const KV_HIGH = 0.85;
/** If more lines raise the throughput by less than this share, the engine is full. */
const GAIN = 0.02;
const SHRINK = 0.5;
/**
 * Number of readings after growth failed before it is tried again, because a single reading is unreliable on a busy
 * machine.
 */
const HOLD = 5;

/**
 * Controls how many lines an engine runs concurrently: additive increase while the throughput rises, multiplicative
 * decrease when the engine is overloaded. Refusals alone would not be enough to notice this, because engines queue
 * without limit.
 */
export class LineConcurrency {
  readonly #limits: WindowLimits;
  #size = 1;
  /**
   * True during the slow start, as in TCP: the number of lines doubles until doubling no longer helps. If it grew by
   * one per second, an engine with 16 slots would take a quarter of a minute to fill.
   */
  #starting = true;
  /** The last increase of the number of lines, until the next reading shows its effect. */
  #trial: { before: number; linesPerS: number } | undefined;
  #hold = 0;
  #preemptions: number | undefined;

  constructor(limits: WindowLimits) {
    this.#limits = limits;
  }

  /** Number of lines that may run if no interactive request does. */
  get size(): number {
    return this.#size;
  }

  /**
   * Number of lines that may run besides this many interactive requests, which take their slots immediately. At least
   * one, so that no batch starves.
   */
  limitWith(interactive: number): number {
    return Math.max(1, Math.min(this.#size, this.#most - interactive));
  }

  /** Takes a reading. Call once a second. */
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

  /**
   * Decides from the next reading whether the last growth helped. If no line finished in that second, nothing is
   * decided, because lines may take longer.
   */
  #judge(linesPerS: number): void {
    const trial = this.#trial;
    this.#trial = undefined;
    this.#hold = Math.max(0, this.#hold - 1);
    if (trial === undefined || linesPerS === 0) return;
    // If the number of lines grew only by a small share, half of that share as gain is enough.
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
