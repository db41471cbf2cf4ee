import { Columns } from './column-generation.ts';
import { evaluatePlan } from './evaluate-plan.ts';
import type { SolverProblem } from './formulation.ts';
import type { Counts } from './planning-problem.ts';

/** Relative width at which the search for the largest share ends: far below any requested gap. */
const CLOSE = 0.004;
/**
 * Shares for which whole configurations are tried, relative to the largest share that fractions of configurations
 * reach.
 */
const WHOLE = [0.995, 0.985, 0.97, 0.95, 0.92, 0.88];
/** Seconds for choosing whole configurations for one share. */
const CHOOSE_S = 3;
/** Tolerance of a pool's limit, for rounding errors. */
const FULL = 1 + 1e-6;

/**
 * Finds the largest share that every model reaches, for problems too large to branch on. For a given share, each model
 * needs a configuration that reaches it. Either the pools hold them all or not, and a bisection finds the limit.
 */
export class ShareSearch {
  readonly #problem: SolverProblem;
  readonly #known: Counts | undefined;
  #last: Columns | undefined;
  prices: readonly number[];
  /** The largest share that fractions of configurations reach. */
  fits = 0;

  /** `known`: an initial plan; `prices`: initial prices of the pools. */
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

  /** Narrows the largest share from both sides, beginning at `guess`, until `deadline` (performance.now). */
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
      // The table became more exact since the guess: the share is slightly below it.
      next = share === guess && high === guess && guess * NEAR > this.fits ? guess * NEAR : undefined;
    }
    return { atMost: high, fractions };
  }

  /** Returns a plan with a share close to that of fractions; undefined if none better than the known plan was found. */
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
