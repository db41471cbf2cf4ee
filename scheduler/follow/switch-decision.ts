/** Decides whether to keep the layout, to wait, or to switch: to which layout, and in which of the slots ahead. */

import { candidateLayouts } from './candidate-layouts.ts';
import {
  type FollowProblem,
  type Layout,
  optionsOf,
  placeText,
  sameLayout,
  startsOf,
  stopsOf,
} from './follow-problem.ts';
import { LayoutCosts } from './layout-costs.ts';

export interface DecideOptions {
  /** A change must save this share of the cost of staying, because forecasts are inaccurate. */
  margin: number;
  /** A change is made when this many consecutive slots found it worthwhile. */
  confirm: number;
}

export interface FollowDecision {
  kind: 'keep' | 'wait' | 'switch';
  /** The layout that should run now. */
  layout: Layout;
  /** The layout to change to; for `wait`, after `inSlots` slots. */
  next: Layout | undefined;
  inSlots: number;
  /** Cost of keeping the layout over the horizon, in request seconds. */
  stayCost: number;
  /** Cost of the best course over the horizon, in request seconds. */
  bestCost: number;
  why: string;
}

/** Remembers the change that the last slots preferred, for how many slots, and the last change made. */
export class Decider {
  readonly #options: DecideOptions;
  #agreed = 0;
  #target: Layout = [];
  /** The layout of the last switch. A factory may still be making this change. */
  #switchedTo: Layout = [];

  constructor(options: DecideOptions) {
    this.#options = options;
  }

  async decide(problem: FollowProblem): Promise<FollowDecision> {
    return this.choose(problem, await candidateLayouts(problem));
  }

  /** Decides between the running layout and these candidates. */
  choose(problem: FollowProblem, candidates: readonly Layout[]): FollowDecision {
    const decision = this.#choose(problem, candidates);
    if (decision.kind !== 'wait') this.#switchedTo = decision.layout;
    return decision;
  }

  #choose(problem: FollowProblem, candidates: readonly Layout[]): FollowDecision {
    const { running } = problem;
    const steps = Math.max(1, ...problem.models.map(({ mean }) => mean.length));
    const layouts = candidates.filter((one) => !sameLayout(one, running));
    const costs = new LayoutCosts(problem, steps);
    const shortlist = costs.cheapest(layouts);
    const wished = layouts.length > 0 && this.#target.length === running.length ? [this.#target] : [];
    costs.simulate([...shortlist, ...wished]);
    const stayCost = costs.stay;
    const stay: FollowDecision = {
      kind: 'keep',
      layout: running,
      next: undefined,
      inSlots: 0,
      stayCost,
      bestCost: stayCost,
      why: '',
    };
    if (layouts.length === 0) {
      this.#agreed = 0;
      return { ...stay, why: 'no layout that fits is better for any slot of the forecast' };
    }
    const { layout, at, cost } = costs.best(shortlist);
    const both = { stayCost, bestCost: cost };
    const change = changeText(problem, running, layout);
    const figures = `${cost.toFixed(1)} request seconds in ${steps} slots, including the switch; the current layout costs ${stayCost.toFixed(1)}`;
    // A change that only starts replicas interrupts no request, and a pin is an operator's order. Neither of them needs
    // further slots that confirm it.
    const starts = stopsOf(running, layout) === 0 && startsOf(running, layout) > 0;
    const ordered = problem.models.some(({ pin }) => pin?.some((count, i) => count > 0 && count !== (running[i] ?? 0)));
    // Every request of a model without replicas waits, so any gain is worthwhile.
    const margin = starts && begins(problem, layout) ? 0 : this.#options.margin;
    if (sameLayout(layout, running) || stayCost - cost < stayCost * margin) {
      this.#agreed = 0;
      if (ordered && layouts[0] !== undefined) return pinned(problem, stay, layouts[0]);
      const isBest = sameLayout(layout, running);
      const why = isBest
        ? 'the current layout is the best for the forecast'
        : `not worth a switch (${change}): ${figures}`;
      return { ...stay, why };
    }
    this.#agree(costs, wished, layout, margin);
    if (at > 0 && !ordered)
      return {
        ...stay,
        ...both,
        kind: 'wait',
        next: layout,
        inSlots: at,
        why: `${change}, best in ${at} slots: ${figures}`,
      };
    const begun = layout.length === this.#switchedTo.length && sameLayout(layout, this.#switchedTo);
    if (!starts && !ordered && !begun && this.#agreed < this.#options.confirm)
      return {
        ...stay,
        ...both,
        kind: 'wait',
        next: layout,
        inSlots: 1,
        why: `${change}, if the next slot agrees: ${figures}`,
      };
    this.#agreed = 0;
    return { kind: 'switch', layout, next: layout, inSlots: 0, ...both, why: `${change}: ${figures}` };
  }

  /**
   * Consecutive slots may prefer different layouts. They agree only if the layout that the previous slot preferred is
   * also worthwhile now.
   */
  #agree(costs: LayoutCosts, wished: readonly Layout[], layout: Layout, margin: number): void {
    const still = costs.stay - costs.best(wished).cost;
    this.#agreed = still > 0 && still >= costs.stay * margin ? this.#agreed + 1 : 1;
    this.#target = layout;
  }
}

function pinned(problem: FollowProblem, stay: FollowDecision, layout: Layout): FollowDecision {
  const why = `an operator's pin: ${changeText(problem, problem.running, layout)}`;
  return { ...stay, kind: 'switch', layout, next: layout, why };
}

/** True if a model gets its first replica. */
function begins({ options, models, running }: FollowProblem, to: Layout): boolean {
  return models.some(({ model }) => {
    const own = optionsOf({ options }, model);
    return own.every((i) => (running[i] ?? 0) === 0) && own.some((i) => (to[i] ?? 0) > 0);
  });
}

/** Formats a change for people: `m 3 to 1 × TP 2, m 1 to 3 × TP 1 × PP 2`. */
export function changeText(problem: Pick<FollowProblem, 'options'>, from: Layout, to: Layout): string {
  const changes = problem.options.flatMap(({ place }, i) => {
    const [before, after] = [from[i] ?? 0, to[i] ?? 0];
    return before === after ? [] : [`${place.model} ${before} to ${after} × ${placeText(problem, place)}`];
  });
  return changes.join(', ') || 'nothing changes';
}
