import { split } from './evaluate-plan.ts';
import { isStable, needsStable, replicaPrice, type SolverProblem, usdPerHour } from './formulation.ts';
import { LpProgram, solve } from './highs.ts';
import { segments } from './latency-curve.ts';
import { packingRows } from './packing-constraints.ts';
import { type Counts, poolGpus } from './planning-problem.ts';
import { cheapest, type Item, joinedWith, quickest } from './replica-sets.ts';

/**
 * Column generation (Gilmore and Gomory 1961). A configuration is a set of replicas that serves one model; the program
 * chooses one configuration for each model. Its relaxation is far tighter than that of single replicas, in which a
 * model that needs a third of a replica pays for a third. Only the pools connect the models; therefore the relaxation
 * uses fractions of configurations for only a few models.
 */
export class Columns {
  readonly #problem: SolverProblem;
  readonly #rows: { limit: number; factor: Map<number, number> }[];
  readonly #base: readonly number[];
  readonly #byModel: readonly number[][];
  readonly #columns: Column[] = [];
  readonly #seen = new Set<string>();
  /** Each configuration serves this share of its model's demand. */
  readonly #share: number;
  /** Cost of a model without a configuration, higher than any real objective. */
  readonly #missing: number;

  /**
   * `share`: if the goal is a share, each configuration serves this share of its model's demand and uses as little of
   * the pools as possible.
   */
  constructor(problem: SolverProblem, share = 1) {
    const { options, pools, settings, goal } = problem;
    this.#problem = problem;
    this.#share = share;
    this.#missing = missingCost(problem);
    this.#rows = packingRows(options, pools).map(({ limit, terms }) => ({
      limit,
      factor: new Map(terms.map(({ option, factor }) => [option, factor])),
    }));
    if (settings.budget !== undefined)
      this.#rows.push({
        limit: settings.budget,
        factor: new Map(options.map((option, o) => [o, usdPerHour(option, pools)])),
      });
    this.#base = options.map((option) =>
      goal.kind === 'replicas'
        ? replicaPrice(option, problem)
        : goal.kind === 'latency'
          ? FREE_GPU_BONUS * option.gpus
          : 0,
    );
    this.#byModel = problem.demands.map((_, m) => options.flatMap((option, o) => (option.demand === m ? [o] : [])));
  }

  /** Adds each model's part of a plan as a configuration, if that part serves the model. */
  learn(counts: Counts): void {
    this.#problem.demands.forEach(
      (_, m) => void this.#add(m, new Map((this.#byModel[m] ?? []).map((o) => [o, counts[o] ?? 0]))),
    );
  }

  /** Adds the configurations of `other`. `#add` omits those that no longer serve their model's demand. */
  adopt(other: Columns): void {
    for (const { model, used } of other.#columns) this.#add(model, new Map(used));
  }

  #add(m: number, counts: ReadonlyMap<number, number>): boolean {
    const { demands, usable, goal, options, pools } = this.#problem;
    const used = [...counts].filter(([, n]) => n > 0).sort((a, b) => a[0] - b[0]);
    const key = `${m} ${used.join(' ')}`;
    if (this.#seen.has(key)) return false;
    const rate = (demands[m]?.rate ?? 0) * this.#share;
    const { left, cost } = split(
      rate,
      used.map(([o, replicas]) => ({ usable: usable[o], replicas })),
    );
    if (left > rate * 1e-6) return false;
    const stable = used.some(([o]) => {
      const option = options[o];
      return option !== undefined && isStable(option, pools);
    });
    if (needsStable(this.#problem, m) && !stable) return false;
    this.#seen.add(key);
    const price = used.reduce((sum, [o, n]) => sum + n * (this.#base[o] ?? 0), 0);
    const usage = this.#rows.map(({ factor }) => used.reduce((sum, [o, n]) => sum + n * (factor.get(o) ?? 0), 0));
    this.#columns.push({ model: m, used, cost: price + (goal.kind === 'latency' ? cost : 0), usage });
    return true;
  }

  /**
   * Returns the best configuration of a model at these shadow prices of the rows, and a lower bound on the cost of all
   * its configurations.
   */
  #price(m: number, prices: readonly number[]): { counts: Map<number, number>; bound: number } | undefined {
    const { floor, usable, demands, options, pools, goal } = this.#problem;
    const mine = this.#byModel[m] ?? [];
    const priceOf = (o: number) =>
      this.#rows.reduce((sum, { factor }, r) => sum + (prices[r] ?? 0) * (factor.get(o) ?? 0), this.#base[o] ?? 0);
    const items = mine.map(
      (o): Item => ({
        option: o,
        price: priceOf(o),
        rate: usable[o]?.rate ?? 0,
        segments: segments(usable[o]?.curve ?? []),
        most: Math.min(
          ...this.#rows.map(({ limit, factor }) =>
            (factor.get(o) ?? 0) > 0 ? Math.floor(limit / (factor.get(o) ?? 1)) : Number.POSITIVE_INFINITY,
          ),
        ),
      }),
    );
    const kept = mine.map((o) => floor[o] ?? 0);
    const rate = (demands[m]?.rate ?? 0) * this.#share;
    const found = (forced: readonly number[]) => {
      const paid = items.reduce((sum, { price }, i) => sum + price * (forced[i] ?? 0), 0);
      const there = items.reduce((sum, item, i) => sum + item.rate * (forced[i] ?? 0), 0);
      const curve = items.reduce<ReturnType<typeof joinedWith>>(
        (all, item, i) => joinedWith(all, item, forced[i] ?? 0),
        [],
      );
      const best = goal.kind === 'latency' ? quickest(items, rate, curve) : cheapest(items, rate - there);
      if (best === undefined) return undefined;
      const counts = new Map(mine.map((o, i) => [o, (best.counts[i] ?? 0) + (forced[i] ?? 0)]));
      return { counts, value: paid + best.value, bound: paid + best.bound };
    };
    if (!needsStable(this.#problem, m)) return found(kept);
    const tried = mine.flatMap((o, i) => {
      const option = options[o];
      if (option === undefined || !isStable(option, pools)) return [];
      return found(kept.map((n, k) => (k === i ? n + 1 : n))) ?? [];
    });
    const best = tried.reduce<(typeof tried)[number] | undefined>(
      (least, one) => (least === undefined || one.value < least.value ? one : least),
      undefined,
    );
    return best && { counts: best.counts, bound: Math.min(...tried.map(({ bound }) => bound)) };
  }

  /**
   * Solves the relaxation over all configurations. It ends if no new configuration would help, at `deadline`
   * (performance.now), or if the bound exceeds `enough`. If the goal is a share, the value is the use of the fullest
   * pool. If it is above 1, the share is impossible.
   */
  async relax(deadline: number, enough = Number.POSITIVE_INFINITY, start?: readonly number[]): Promise<Relaxed> {
    let bound = Number.NEGATIVE_INFINITY;
    let value = Number.POSITIVE_INFINITY;
    let values: number[] = [];
    let missing = true;
    let prices: readonly number[] | undefined = start;
    for (let round = 0; round < ROUNDS_MAX; round++) {
      if (prices !== undefined) {
        const { found, least } = this.#priced(prices);
        bound = Math.max(bound, least);
        if (least === Number.POSITIVE_INFINITY) return { bound, value, values, prices, missing, complete: true };
        const added = found.filter(({ m, counts }) => this.#add(m, counts)).length;
        if (bound >= enough) return { bound, value, values, prices, missing, complete: true };
        const fits = this.#bottleneck && value <= 1;
        if (round > 0 && (fits || added === 0 || value - bound <= CLOSE * Math.abs(value)))
          return { bound, value, values, prices, missing, complete: true };
      }
      const left = (deadline - performance.now()) / 1e3;
      if (left <= 0) break;
      const solved = await solve(this.#program(false).program, { timeLimitS: left, gap: 0, seed: 1, relaxed: true });
      if (solved.values.length === 0) break;
      value = solved.objective;
      values = [...solved.values.slice(0, this.#columns.length)];
      missing = solved.values.slice(-this.#problem.demands.length).some((one) => one > 1e-4);
      prices = this.#rows.map((_, r) => Math.max(0, -(solved.duals[r] ?? 0)));
    }
    return { bound, value, values, prices, missing, complete: false };
  }

  #priced(prices: readonly number[]) {
    const found: { m: number; counts: Map<number, number> }[] = [];
    let least = this.#bottleneck ? 0 : -this.#rows.reduce((sum, { limit }, r) => sum + limit * (prices[r] ?? 0), 0);
    this.#problem.demands.forEach((_, m) => {
      const best = this.#price(m, prices);
      least += best?.bound ?? Number.POSITIVE_INFINITY;
      if (best !== undefined) found.push({ m, counts: best.counts });
    });
    if (this.#bottleneck) {
      // If the goal minimizes the fullest pool, the prices are weights of the pools. Any weights that sum to 1 give a
      // bound.
      const weight = this.#rows.reduce((sum, { limit }, r) => sum + limit * (prices[r] ?? 0), 0);
      least = weight > 0 ? least / weight : 0;
    }
    return { found, least };
  }

  get #bottleneck(): boolean {
    return this.#problem.goal.kind === 'share';
  }

  #program(integer: boolean): { program: LpProgram } {
    const program = new LpProgram();
    const columns = this.#columns.map(({ cost }) =>
      program.column(cost, 0, integer ? 1 : Number.POSITIVE_INFINITY, integer),
    );
    const most = integer ? 1 : Number.POSITIVE_INFINITY;
    const full = this.#bottleneck ? program.column(1, 0, most) : undefined;
    this.#rows.forEach(({ limit }, r) => {
      const terms = columns.map((column, k) => [column, this.#columns[k]?.usage[r] ?? 0] as const);
      if (full === undefined) program.row(Number.NEGATIVE_INFINITY, limit, terms);
      else program.row(Number.NEGATIVE_INFINITY, 0, [...terms, [full, -limit]]);
    });
    this.#problem.demands.forEach((_, m) => {
      const mine = columns.filter((_column, k) => this.#columns[k]?.model === m).map((column) => [column, 1] as const);
      // In the relaxation, a model may have no configuration. The cost of that is so high that it happens only while no
      // combination of known configurations fits the pools.
      const missing = integer ? [] : [[program.column(this.#missing, 0, 1), 1] as const];
      program.row(1, 1, [...mine, ...missing]);
    });
    return { program };
  }

  /** Returns the replicas of the best choice of one known configuration per model; undefined if none was found. */
  async choose(timeLimitS: number, gap: number): Promise<number[] | undefined> {
    if (timeLimitS <= 0.02) return undefined;
    const { program } = this.#program(true);
    const solved = await solve(program, { timeLimitS, gap, seed: 1 });
    if (solved.values.length === 0) return undefined;
    const counts = this.#problem.options.map(() => 0);
    this.#columns.forEach(({ used }, k) => {
      if ((solved.values[k] ?? 0) < 0.5) return;
      for (const [o, n] of used) counts[o] = (counts[o] ?? 0) + n;
    });
    return counts;
  }

  /** Replicas by option if the relaxation uses each configuration `values` times; may be fractions. */
  fractions(values: readonly number[]): number[] {
    const counts = this.#problem.options.map(() => 0);
    this.#columns.forEach(({ used }, k) => {
      for (const [o, n] of used) counts[o] = (counts[o] ?? 0) + n * (values[k] ?? 0);
    });
    return counts;
  }
}

interface Column {
  model: number;
  used: [option: number, replicas: number][];
  /** Cost of the configuration, without the shadow prices of the rows. */
  cost: number;
  /** Use of each row's limit. */
  usage: number[];
}

interface Relaxed {
  /** Proven lower bound on the value of every plan. */
  bound: number;
  /** Objective value of the relaxation. */
  value: number;
  /** How many times the relaxation uses each configuration; may be a fraction. */
  values: number[];
  /** Shadow prices of the rows. */
  prices: readonly number[] | undefined;
  /**
   * True if some model has no configuration in the solution, because its known configurations do not fit beside those
   * of the other models. Proven if `complete`.
   */
  missing: boolean;
  /** True if more rounds would not improve the result. */
  complete: boolean;
}

const FREE_GPU_BONUS = 1e-7;
const ROUNDS_MAX = 200;
/**
 * If the relaxation and its bound differ by less than this relative distance, further configurations are not worth
 * their time.
 */
const CLOSE = 0.002;
function missingCost({ options, usable, demands, pools, goal, settings }: SolverProblem): number {
  const slowest = Math.max(1, ...usable.map(({ curve }) => curve.at(-1)?.latencyS ?? 0));
  const rate = demands.reduce((sum, demand) => sum + demand.rate, 0);
  const problem = { pools, settings };
  const all = pools.reduce((sum, pool, p) => {
    const dearest = Math.max(
      0,
      ...options.filter((one) => one.pool === p).map((one) => replicaPrice(one, problem) / one.gpus),
    );
    return sum + poolGpus(pool) * dearest;
  }, 0);
  return 100 * Math.max(1, goal.kind === 'latency' ? rate * slowest : all);
}
