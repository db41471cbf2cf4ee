import { SERVED_TOLERANCE, split } from './evaluate-plan.ts';
import { isStable, needsStable, replicaPrice, type SolverProblem, usdPerHour } from './formulation.ts';
import { packingRows } from './packing-constraints.ts';

/**
 * Marks options that other options can replace: replicas of the other option need fewer GPUs each, and on the same GPUs
 * they serve at least as many requests. Marks none if the goal is `latency` or `placed`.
 */
function findDominated({ options, pools, usable, goal }: SolverProblem): boolean[] {
  if (goal.kind === 'latency' || goal.kind === 'placed') return options.map(() => false);
  return options.map((option, o) =>
    options.some(
      (other, i) =>
        other.demand === option.demand &&
        other.pool === option.pool &&
        pools[option.pool]?.oneEngine !== true &&
        other.gpus < option.gpus &&
        option.gpus % other.gpus === 0 &&
        (usable[i]?.rate ?? 0) * (option.gpus / other.gpus) >= (usable[o]?.rate ?? 0),
    ),
  );
}

/**
 * Finds a first plan by adding and exchanging replicas greedily, starting from given counts, and computes the effect of
 * single exchanges. A trial computes the cost of one model only, so it takes microseconds.
 */
export class Search {
  readonly counts: number[];
  readonly #problem: SolverProblem;
  readonly #byModel: number[][];
  readonly #rows: { left: number; terms: Map<number, number> }[];
  readonly #rowsOf: number[][];
  readonly #costs: number[];
  readonly #useless: readonly boolean[];
  readonly #price: readonly number[];
  readonly #usd: readonly number[];
  readonly #stable: readonly boolean[];
  #budget: number;

  constructor(problem: SolverProblem, start: readonly number[]) {
    const { options, pools, demands, settings, usable } = problem;
    this.#problem = problem;
    this.#useless = findDominated(problem).map((useless, o) => useless || (usable[o]?.rate ?? 0) <= 0);
    this.#price = options.map((option) => replicaPrice(option, problem));
    this.#usd = options.map((option) => usdPerHour(option, pools));
    this.#stable = demands.map((_, m) => needsStable(problem, m));
    this.counts = options.map((_, o) => start[o] ?? 0);
    this.#byModel = demands.map((_, m) => options.flatMap((option, o) => (option.demand === m ? [o] : [])));
    this.#rows = packingRows(options, pools).map(({ limit, terms }) => ({
      left: limit - terms.reduce((sum, { option, factor }) => sum + factor * (this.counts[option] ?? 0), 0),
      terms: new Map(terms.map(({ option, factor }) => [option, factor])),
    }));
    this.#rowsOf = options.map((_, o) => this.#rows.flatMap((row, r) => (row.terms.has(o) ? [r] : [])));
    this.#budget =
      (settings.budget ?? Number.POSITIVE_INFINITY) -
      this.counts.reduce((sum, n, o) => sum + n * (this.#usd[o] ?? 0), 0);
    this.#costs = demands.map((_, m) => this.#cost(m));
  }

  /**
   * Cost of a model; lower is better. If the goal is a share, the cost falls steeply with the served rate, so that the
   * worst served model takes precedence.
   */
  #cost(m: number): number {
    const { options, demands, goal, usable, pools } = this.#problem;
    const demand = demands[m];
    const mine = this.#byModel[m] ?? [];
    if (demand === undefined) return 0;
    const stable = mine.some((o) => {
      const option = options[o];
      return (this.counts[o] ?? 0) > 0 && option !== undefined && isStable(option, pools);
    });
    const unstable = this.#stable[m] === true && !stable ? UNSERVED : 0;
    if (demand.rate <= 0) return unstable;
    const chosen = mine.filter((o) => (this.counts[o] ?? 0) > 0);
    const capacity = chosen.reduce((sum, o) => sum + (this.counts[o] ?? 0) * (usable[o]?.rate ?? 0), 0);
    const missing = Math.max(0, 1 - capacity / demand.rate);
    const short = missing > SERVED_TOLERANCE ? missing * UNSERVED : 0;
    switch (goal.kind) {
      case 'share': {
        const share = Math.min(goal.most, capacity / demand.rate);
        return unstable + (1 / (share + 1e-6)) ** SHARE_NORM;
      }
      case 'replicas':
        return unstable + short + chosen.reduce((sum, o) => sum + (this.counts[o] ?? 0) * (this.#price[o] ?? 0), 0);
      case 'latency': {
        const { cost } = split(
          demand.rate,
          chosen.map((o) => ({ usable: usable[o], replicas: this.counts[o] ?? 0 })),
        );
        return unstable + short + (Number.isNaN(cost) ? 0 : cost);
      }
      case 'placed':
        return unstable;
    }
  }

  total(): number {
    return this.#costs.reduce((a, b) => a + b, 0);
  }

  /** True if all rows and the budget allow one more replica of option `o`. */
  #room(o: number): boolean {
    if (this.#useless[o] === true || (this.#usd[o] ?? 0) > this.#budget + 1e-9) return false;
    return (this.#rowsOf[o] ?? []).every((r) => (this.#rows[r]?.left ?? 0) >= (this.#rows[r]?.terms.get(o) ?? 0));
  }

  #shift(o: number, by: number): void {
    this.counts[o] = (this.counts[o] ?? 0) + by;
    this.#budget -= by * (this.#usd[o] ?? 0);
    for (const r of this.#rowsOf[o] ?? []) {
      const row = this.#rows[r];
      if (row) row.left -= by * (row.terms.get(o) ?? 0);
    }
  }

  /** Returns how the cost would change if option `o` got `by` more replicas. */
  #trial(o: number, by: number): number {
    const m = this.#problem.options[o]?.demand ?? 0;
    this.counts[o] = (this.counts[o] ?? 0) + by;
    const change = this.#cost(m) - (this.#costs[m] ?? 0);
    this.counts[o] = (this.counts[o] ?? 0) - by;
    return change;
  }

  #commit(o: number, by: number): void {
    this.#shift(o, by);
    const m = this.#problem.options[o]?.demand ?? 0;
    this.#costs[m] = this.#cost(m);
  }

  /**
   * Adds replicas one by one, each time a replica of the option that lowers the cost most per GPU, until no option
   * lowers it or until `deadline` (performance.now).
   */
  fill(deadline: number): void {
    const { options } = this.#problem;
    const gain = (o: number) => -this.#trial(o, 1) / Math.max(1e-9, this.#price[o] ?? 1);
    const gains = options.map((_, o) => gain(o));
    while (performance.now() < deadline) {
      let best = -1;
      for (let o = 0; o < options.length; o++) {
        if ((gains[o] ?? 0) > 1e-9 && (best < 0 || (gains[o] ?? 0) > (gains[best] ?? 0)) && this.#room(o)) best = o;
      }
      if (best < 0) return;
      this.#commit(best, 1);
      for (const o of this.#byModel[options[best]?.demand ?? 0] ?? []) gains[o] = gain(o);
    }
  }

  /**
   * Removes one replica and adds others in its place while that lowers the cost, until `deadline` (performance.now).
   */
  exchange(deadline: number): void {
    const { options, floor } = this.#problem;
    for (let better = true; better && performance.now() < deadline; ) {
      better = false;
      for (let o = 0; o < options.length && performance.now() < deadline; o++) {
        while ((this.counts[o] ?? 0) > (floor[o] ?? 0) && performance.now() < deadline && this.#replace(o))
          better = true;
      }
    }
  }

  #replace(o: number): boolean {
    const { options } = this.#problem;
    const before = this.total();
    const saved = [...this.counts];
    this.#commit(o, -1);
    const { pool, demand } = options[o] ?? {};
    // Only options in the pool of the freed GPUs, and options of the model that lost a replica, can lower the cost now.
    // This is repeated, because the freed GPUs of a large replica may hold several small replicas.
    for (let round = 0; round < 8; round++) {
      let best = -1;
      let gain = 1e-9;
      for (let other = 0; other < options.length; other++) {
        const { pool: at, demand: of } = options[other] ?? {};
        if ((at !== pool && of !== demand) || !this.#room(other)) continue;
        const value = -this.#trial(other, 1);
        if (value > gain) {
          best = other;
          gain = value;
        }
      }
      if (best < 0) break;
      this.#commit(best, 1);
    }
    if (this.total() < before - 1e-7 * Math.abs(before)) return true;
    for (let other = 0; other < options.length; other++) {
      const by = (saved[other] ?? 0) - (this.counts[other] ?? 0);
      if (by !== 0) this.#commit(other, by);
    }
    return false;
  }

  /**
   * Removes replicas that improve the objective least, lowest gain per GPU first, while the total loss is at most
   * `loss`. A replica that serves requests or is required stays, because its gain is far above `loss`.
   */
  trim(loss: number): void {
    const { options, floor } = this.#problem;
    let left = loss;
    for (;;) {
      let best = -1;
      let [least, gained] = [Number.POSITIVE_INFINITY, 0];
      for (let o = 0; o < options.length; o++) {
        if ((this.counts[o] ?? 0) <= (floor[o] ?? 0)) continue;
        const more = this.#trial(o, -1);
        if (more > left) continue;
        const each = more / Math.max(1e-9, this.#price[o] ?? 1);
        if (each < least) [best, least, gained] = [o, each, more];
      }
      if (best < 0) return;
      left -= Math.max(0, gained);
      this.#commit(best, -1);
    }
  }

  /**
   * Returns the best exchange of one replica of model `m` for another, and the cost after it; undefined if none is
   * possible.
   */
  runnerUp(m: number): { from: number; to: number; cost: number } | undefined {
    const { floor } = this.#problem;
    let best: { from: number; to: number; cost: number } | undefined;
    for (const from of this.#byModel[m] ?? []) {
      if ((this.counts[from] ?? 0) <= (floor[from] ?? 0)) continue;
      this.#commit(from, -1);
      for (const to of this.#byModel[m] ?? []) {
        if (to === from || !this.#room(to)) continue;
        const cost = this.total() + this.#trial(to, 1);
        if (best === undefined || cost < best.cost) best = { from, to, cost };
      }
      this.#commit(from, 1);
    }
    return best;
  }
}

/** Exponent of the norm of 1/share that approximates the lowest share: the higher, the closer. */
const SHARE_NORM = 12;
/** Cost of a model without any served request, in the objective's unit: above any real value. */
export const UNSERVED = 1e7;
