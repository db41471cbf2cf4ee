import { dominated } from './dominated.ts';
import { evaluate } from './evaluate.ts';
import type { Problem } from './formulation.ts';
import { packingRows } from './packing.ts';

/**
 * Greedy filling and exchange of replicas on top of a start, for problems too large to branch on and for places without a solver.
 * Works on one model's cost at a time, so that a trial costs microseconds.
 */
export class Search {
  readonly counts: number[];
  readonly #problem: Problem;
  readonly #byModel: number[][];
  readonly #rows: { left: number; terms: Map<number, number> }[];
  readonly #rowsOf: number[][];
  readonly #costs: number[];
  readonly #useless: readonly boolean[];
  #budget: number;

  constructor(problem: Problem, start: readonly number[]) {
    this.#problem = problem;
    this.#useless = dominated(problem.options, problem.pools, problem.settings);
    this.counts = problem.options.map((_, o) => start[o] ?? 0);
    this.#byModel = problem.demands.map((_, m) =>
      problem.options.flatMap((option, o) => (option.demand === m ? [o] : [])),
    );
    this.#rows = packingRows(problem.options, problem.pools).map(({ limit, terms }) => ({
      left: limit - terms.reduce((sum, { option, factor }) => sum + factor * (this.counts[option] ?? 0), 0),
      terms: new Map(terms.map(({ option, factor }) => [option, factor])),
    }));
    this.#rowsOf = problem.options.map((_, o) => this.#rows.flatMap((row, r) => (row.terms.has(o) ? [r] : [])));
    this.#budget =
      (problem.settings.budget ?? Number.POSITIVE_INFINITY) -
      this.counts.reduce((sum, n, o) => sum + n * this.#usd(o), 0);
    this.#costs = problem.demands.map((_, m) => this.#cost(m));
  }

  #usd(o: number): number {
    const option = this.#problem.options[o];
    return option === undefined ? 0 : (this.#problem.pools[option.pool]?.gpu.usdPerHour ?? 0) * option.tp;
  }

  /** Lower is better. Throughput: a steep function of the model's share, so that the least served comes first. */
  #cost(m: number): number {
    const { options, demands, settings } = this.#problem;
    const demand = demands[m];
    const mine = this.#byModel[m] ?? [];
    if (demand === undefined || demand.rate <= 0) return 0;
    if (settings.objective === 'throughput') {
      const capacity = mine.reduce((sum, o) => sum + (this.counts[o] ?? 0) * (options[o]?.capacity ?? 0), 0);
      return (demand.rate / (capacity + 1e-6 * demand.rate)) ** THROUGHPUT_NORM;
    }
    const chosen = mine.filter((o) => (this.counts[o] ?? 0) > 0);
    const local = chosen.flatMap((o) => (options[o] === undefined ? [] : [{ ...options[o], demand: 0 }]));
    const { unserved, latency } = evaluate(
      local,
      chosen.map((o) => this.counts[o] ?? 0),
      [demand],
      settings.objective,
    );
    const missing = unserved[0] ?? 0;
    const money =
      settings.objective === 'cost' ? mine.reduce((sum, o) => sum + (this.counts[o] ?? 0) * this.#usd(o), 0) : 0;
    const waiting = settings.objective === 'latency' ? (demand.rate - missing) * (latency[0] || 0) : 0;
    const late = settings.latencyS !== undefined && (latency[0] ?? 0) > settings.latencyS ? demand.rate : 0;
    return money + waiting + (missing + late) * UNSERVED;
  }

  total(): number {
    const sum = this.#costs.reduce((a, b) => a + b, 0);
    return sum;
  }

  #room(o: number): boolean {
    if (this.#useless[o] === true || this.#usd(o) > this.#budget + 1e-9) return false;
    return (this.#rowsOf[o] ?? []).every((r) => (this.#rows[r]?.left ?? 0) >= (this.#rows[r]?.terms.get(o) ?? 0));
  }

  #shift(o: number, by: number): void {
    this.counts[o] = (this.counts[o] ?? 0) + by;
    this.#budget -= by * this.#usd(o);
    for (const r of this.#rowsOf[o] ?? []) {
      const row = this.#rows[r];
      if (row) row.left -= by * (row.terms.get(o) ?? 0);
    }
  }

  /** Change of the cost if `o` changed by `by`, without changing it. */
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

  /** Adds the replica that helps most per GPU until none helps. */
  fill(): void {
    const { options } = this.#problem;
    const gains = options.map((_, o) => -this.#trial(o, 1) / (options[o]?.tp ?? 1));
    for (;;) {
      let best = -1;
      for (let o = 0; o < options.length; o++) {
        if ((gains[o] ?? 0) > 1e-9 && (best < 0 || (gains[o] ?? 0) > (gains[best] ?? 0)) && this.#room(o)) best = o;
      }
      if (best < 0) return;
      this.#commit(best, 1);
      for (const o of this.#byModel[options[best]?.demand ?? 0] ?? [])
        gains[o] = -this.#trial(o, 1) / (options[o]?.tp ?? 1);
    }
  }

  /** Takes one replica away and puts others in its place while that helps; until `deadline` (performance.now). */
  exchange(deadline: number): void {
    const { options, floor } = this.#problem;
    for (let better = true; better && performance.now() < deadline; ) {
      better = false;
      for (let o = 0; o < options.length && performance.now() < deadline; o++) {
        while ((this.counts[o] ?? 0) > (floor[o] ?? 0) && this.#replace(o)) better = true;
      }
    }
  }

  #replace(o: number): boolean {
    const { options } = this.#problem;
    const before = this.total();
    const saved = [...this.counts];
    this.#commit(o, -1);
    const pool = options[o]?.pool;
    // Only what shares the freed GPUs can profit; twice, since a large replica makes room for two small ones.
    for (let round = 0; round < 8; round++) {
      let best = -1;
      let gain = 1e-9;
      for (let other = 0; other < options.length; other++) {
        if (options[other]?.pool !== pool || !this.#room(other)) continue;
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

  /** The best that one exchange of a replica for another would give, if it is worse than what is there. */
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

/** High norms of 1/share come close to the least share. */
const THROUGHPUT_NORM = 12;
/** Seconds or USD/h that a request/s without a replica counts as: above anything real. */
const UNSERVED = 1e5;
