/** Costs of layouts in a decision: by averages, and what a simulation adds for the best ones. */
import { type FollowProblem, type Layout, sameLayout } from './follow-problem.ts';
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
  /** Simulated minus average request seconds over the horizon; the first is the running layout. */
  readonly #differences: readonly { layout: Layout; seconds: number }[];

  constructor(problem: FollowProblem, steps: number, simulated: readonly Layout[]) {
    this.#problem = problem;
    this.#steps = steps;
    const layouts = [problem.running, ...simulated];
    const differences = simulatedDifferences(problem, layouts);
    this.#differences = layouts.map((layout, i) => ({ layout, seconds: differences[i] ?? 0 }));
  }

  /** The cost of the current layout over the horizon, request seconds. */
  get stay(): number {
    const { running } = this.#problem;
    return Math.max(0, transitionCost(this.#problem, running, undefined) + this.#difference(running));
  }

  /** The cost if the change to a layout is ordered in slot `at`. */
  change(layout: Layout, at: number): number {
    const after = (this.#steps - at) / this.#steps;
    const before = this.#difference(this.#problem.running) * (1 - after);
    return Math.max(0, transitionCost(this.#problem, layout, at) + before + this.#difference(layout) * after);
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

  #courses(layout: Layout): Course[] {
    return Array.from({ length: this.#steps }, (_, at) => ({ layout, at, cost: this.change(layout, at) }));
  }

  #difference(layout: Layout): number {
    return this.#differences.find((one) => sameLayout(one.layout, layout))?.seconds ?? 0;
  }
}
