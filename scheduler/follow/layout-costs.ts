/** Costs of layouts in a decision: by averages, and what a simulation adds for the best ones. */
import { type FollowProblem, type Layout, layoutKey } from './follow-problem.ts';
import { simulatedDifferences } from './rehearsal.ts';
import { transitionCost } from './transition-cost.ts';

/** Layouts with the lowest costs by averages that are simulated, beside the current one. */
const SIMULATED = 6;

interface Course {
  layout: Layout;
  /** The slot ahead in which the change is ordered. */
  at: number;
  cost: number;
}

export class LayoutCosts {
  readonly #problem: FollowProblem;
  readonly #steps: number;
  /** Costs by averages of layouts, if the change is ordered in each slot. One entry per candidate of the decision. */
  readonly #averages = new Map<string, readonly number[]>();
  /** Simulated minus average request seconds over the horizon. One entry per layout that was simulated. */
  readonly #differences = new Map<string, number>();

  constructor(problem: FollowProblem, steps: number) {
    this.#problem = problem;
    this.#steps = steps;
  }

  /** From here on, the costs of these layouts and of the running one include what a simulation adds. */
  simulate(simulated: readonly Layout[]): void {
    const layouts = [this.#problem.running, ...simulated];
    const differences = simulatedDifferences(this.#problem, layouts);
    for (const [i, layout] of layouts.entries()) this.#differences.set(layoutKey(layout), differences[i] ?? 0);
  }

  /** The cost of the current layout over the horizon, request seconds. */
  get stay(): number {
    const { running } = this.#problem;
    return Math.max(0, transitionCost(this.#problem, running, undefined) + this.#difference(running));
  }

  /** The cheapest of these layouts, and when to change to it; the current one if none is cheaper. */
  best(layouts: readonly Layout[]): Course {
    const stay: Course = { layout: this.#problem.running, at: 0, cost: this.stay };
    return layouts.flatMap((layout) => this.#courses(layout)).reduce((a, b) => (b.cost < a.cost ? b : a), stay);
  }

  /** The layouts with the lowest costs. */
  cheapest(layouts: readonly Layout[]): Layout[] {
    if (layouts.length <= SIMULATED) return [...layouts];
    const ranked = layouts.map((layout) => ({
      layout,
      cost: Math.min(...this.#courses(layout).map(({ cost }) => cost)),
    }));
    return ranked
      .sort((a, b) => a.cost - b.cost)
      .slice(0, SIMULATED)
      .map(({ layout }) => layout);
  }

  /** The costs if the change to a layout is ordered in each of the slots ahead. */
  #courses(layout: Layout): Course[] {
    const [own, running] = [this.#difference(layout), this.#difference(this.#problem.running)];
    return this.#averagesOf(layout).map((averages, at) => {
      const after = (this.#steps - at) / this.#steps;
      return { layout, at, cost: Math.max(0, averages + running * (1 - after) + own * after) };
    });
  }

  #averagesOf(layout: Layout): readonly number[] {
    const key = layoutKey(layout);
    const averages =
      this.#averages.get(key) ??
      Array.from({ length: this.#steps }, (_, at) => transitionCost(this.#problem, layout, at));
    this.#averages.set(key, averages);
    return averages;
  }

  #difference(layout: Layout): number {
    return this.#differences.get(layoutKey(layout)) ?? 0;
  }
}
