import { Columns } from './column-generation.ts';
import { evaluatePlan } from './evaluate-plan.ts';
import type { SolverProblem } from './formulation.ts';
import type { Counts } from './planning-problem.ts';

/**
 * The search ends when the bounds of the largest share differ by less than this relative distance, which is far below
 * any requested gap.
 */
const CLOSE = 0.004;
/**
 * Shares for which whole configurations are tried, as multiples of the largest share that is possible with fractions of
 * configurations.
 */
const WHOLE = [0.995, 0.985, 0.97, 0.95, 0.92, 0.88];
/** Time limit for choosing whole configurations for one share, seconds. */
const CHOOSE_S = 3;
/** A pool counts as exceeded if its use is above this. The value is slightly above 1 because of rounding errors. */
const FULL = 1 + 1e-6;

/**
 * Finds the largest share that every model reaches, for problems too large for branch and cut. For a given share, each
 * model needs a configuration that reaches it. Bisection finds the largest share for which the pools hold all these
 * configurations.
 */
export class ShareSearch {
  readonly #problem: SolverProblem;
  readonly #known: Counts | undefined;
  #last: Columns | undefined;
  prices: readonly number[];
  /** The largest share that fractions of configurations reach. */
  fits = 0;

  /** `known`: a plan to start from; `prices`: shadow prices of the pools to start from. */
  constructor(problem: SolverProblem, known: Counts | undefined, prices: readonly number[]) {
    this.#problem = problem;
    this.#known = known;
    this.prices = prices;
  }

  #shareOf(counts: Counts | undefined): number {
    const { options, usable, demands } = this.#problem;
    return counts === undefined ? 0 : evaluatePlan(options, usable, counts, demands).share;
  }

  #at(share: number): Columns {
    const columns = new Columns(this.#problem, share);
    if (this.#last !== undefined) columns.adopt(this.#last);
    if (this.#known !== undefined) columns.learn(this.#known);
    this.#last = columns;
    return columns;
  }

  /**
   * Narrows the interval that contains the largest share, from both sides and beginning at `guess`, until `deadline`
   * (performance.now).
   */
  async bound(atMost: number, guess: number, deadline: number): Promise<{ atMost: number; fractions: number[] }> {
    let high = atMost;
    let fractions: number[] = [];
    this.fits = this.#shareOf(this.#known);
    let next = guess > this.fits && guess < high ? guess : undefined;
    while (high > this.fits * (1 + CLOSE) && performance.now() < deadline) {
      const share = next ?? (this.fits > high / 3 ? Math.sqrt(this.fits * high) : high / 2);
      const columns = this.#at(share);
      const { bound, value, values, prices } = await columns.relax(deadline, FULL, this.prices);
      this.prices = prices ?? this.prices;
      if (bound > FULL) high = share;
      else if (value <= FULL) {
        this.fits = share;
        fractions = columns.fractions(values);
      } else break;
      // Options were simulated since `guess` was found, which lowers the share slightly. So the next try is slightly
      // below `guess`.
      next = share === guess && high === guess && guess * NEAR > this.fits ? guess * NEAR : undefined;
    }
    return { atMost: high, fractions };
  }

  /**
   * Returns a plan of whole configurations with a share close to that of fractions; undefined if no plan better than
   * the known one was found.
   */
  async whole(deadline: number): Promise<number[] | undefined> {
    const low = this.#shareOf(this.#known);
    for (const part of WHOLE) {
      const share = this.fits * part;
      const left = deadline - performance.now();
      if (share <= low * (1 + CLOSE / 2) || left <= 0) return undefined;
      const columns = this.#at(share);
      await columns.relax(performance.now() + 0.2 * left, FULL, this.prices);
      const counts = await columns.choose(Math.min(CHOOSE_S, left / 3e3), 0.5);
      if (counts !== undefined) return counts;
    }
    return undefined;
  }
}

const NEAR = 0.97;
