/**
 * Evidence that a series of numbers has a positive mean, by betting on the next number. A gambler without an edge gains
 * nothing on average, so that under "no number has a positive mean, given the past" the wealth reaches W with a
 * probability of at most 1/W, at any time and however often one looks (Ville's inequality). A test with a fixed number
 * of slots would not allow to look after each slot. Pure.
 */
import * as z from 'zod';

/** Largest stake, as a share of the wealth: a loss of all would end the evidence for ever. */
const STAKE_MAX = 0.9;
/** Weight of the newest number in the estimates of mean and square: what happened hours ago says little. */
const WEIGHT = 0.02;
/** The first estimate of a square: without it, one number would decide the stake. */
const SQUARE_START = 0.25;
/** Bounds of the wealth, so that no number of slots overflows it, or ends it for ever. */
const [WEALTH_LEAST, WEALTH_MOST] = [1e-9, 1e12];

/** The state of one, for a file. */
export const evidenceSchema = z.strictObject({
  wealth: z.number().min(WEALTH_LEAST).max(WEALTH_MOST),
  mean: z.number().min(-1).max(1),
  square: z.number().positive().max(1),
  seen: z.number().int().min(0).max(1e9),
});
type EvidenceState = z.infer<typeof evidenceSchema>;

export class BettingEvidence {
  readonly #least: number;
  #wealth = 1;
  #mean = 0;
  #square = SQUARE_START;
  #seen = 0;

  /**
   * `least`: the wealth does not fall below it. 1 makes a detector of changes: it then exceeds W by chance once in W
   * numbers or more, on average, and finds a change soon after it happens.
   */
  constructor(least: number = WEALTH_LEAST) {
    this.#least = least;
  }

  /** Continues from a saved state. */
  static from(state: EvidenceState, least?: number): BettingEvidence {
    const evidence = new BettingEvidence(least);
    evidence.#wealth = Math.max(evidence.#least, state.wealth);
    evidence.#mean = state.mean;
    evidence.#square = state.square;
    evidence.#seen = state.seen;
    return evidence;
  }

  get state(): EvidenceState {
    return { wealth: this.#wealth, mean: this.#mean, square: this.#square, seen: this.#seen };
  }

  get wealth(): number {
    return this.#wealth;
  }

  /** Number of observed numbers. */
  get seen(): number {
    return this.#seen;
  }

  /** `value`: counts between −1 and 1. The stake depends only on earlier values. */
  observe(value: number): void {
    if (!Number.isFinite(value)) return;
    const x = Math.min(1, Math.max(-1, value));
    const stake = Math.min(STAKE_MAX, Math.max(0, this.#mean / this.#square));
    this.#wealth = Math.min(WEALTH_MOST, Math.max(this.#least, this.#wealth * (1 + stake * x)));
    const weight = Math.max(WEIGHT, 1 / (++this.#seen + 1));
    this.#mean += weight * (x - this.#mean);
    this.#square += weight * (x ** 2 - this.#square);
  }
}
