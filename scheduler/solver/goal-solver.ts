import { SchedulerError } from '../errors.ts';
import { Columns } from './column-generation.ts';
import { type Formulation, formulate, type Goal, type SolverProblem } from './formulation.ts';
import { Search } from './greedy-search.ts';
import { type LpSolution, solve } from './highs.ts';
import { packingRows } from './packing-constraints.ts';
import type { Counts } from './planning-problem.ts';
import { ShareSearch } from './share-search.ts';
import { isSmall, planValue, problemOf, relativeGap, type SolverContext, tightened } from './solver-context.ts';

const LINEAR_ROUNDS = 12;
/** Rounds of the relaxation for a large problem. After them, column generation makes faster progress. */
const LINEAR_ROUNDS_LARGE = 5;
const SEARCH_ROUNDS = 4;
/** Minimum time limit of a relaxation, seconds: explaining a plan needs one even if little time is left. */
const LINEAR_MIN_S = 10;
/** Share of a goal's time for the first search, which fills and exchanges replicas. */
const EXCHANGE_SHARE = 0.1;
/** For this share of a goal's time, column generation simulates options. Then it chooses whole configurations. */
const REFINE_SHARE = 0.6;
/** Minimum time for greedy filling, which takes a few hundred milliseconds for a hundred models. */
const FILL_MIN_MS = 500;
/**
 * Share of a goal's time for one branch and cut. The rest is for simulating the options of its plan, and for another
 * branch and cut with the results.
 */
const BRANCH_SHARE = 0.5;

export interface GoalOutcome {
  problem: SolverProblem;
  /** The best plan found; undefined if none satisfies all conditions. Every option that it uses was simulated. */
  counts: Counts | undefined;
  /** Objective value of `counts`; lower is better. */
  value: number;
  /** Lower bound on the value of every plan, if the estimates of options are optimistic. */
  bound: number;
  /** Proven: no plan satisfies all conditions. */
  impossible: boolean;
  method: 'highs' | 'search' | 'columns';
  /** Value of one more GPU, for each condition on a pool; 0 if no relaxation was solved. */
  prices: readonly PoolPrice[];
}

/** Shadow price of one condition on a pool. One more GPU raises the condition's limit by `perGpu`. */
export interface PoolPrice {
  pool: number;
  perGpu: number;
  price: number;
}

/** Solves one goal: holds the best plan and bound found so far, and simulates the options that plans use. */
export class GoalSolver {
  readonly #context: SolverContext;
  readonly #goal: Goal;
  readonly #deadline: number;
  readonly #seconds: number;
  #problem: SolverProblem;
  #best: { counts: Counts; value: number } | undefined;
  #bound = Number.NEGATIVE_INFINITY;
  #relaxed: { formulation: Formulation; solved: LpSolution } | undefined;
  #method: GoalOutcome['method'] = 'search';
  #columns: Columns | undefined;
  /** Shadow prices with which column generation starts. */
  #start: readonly number[] | undefined;
  /** The share that the relaxation, which may use fractions of configurations, reached in the last round. */
  #fits = 0;

  /** `deadline`: time by performance.now. */
  constructor(context: SolverContext, goal: Goal, deadline: number) {
    this.#context = context;
    this.#goal = goal;
    this.#deadline = deadline;
    this.#seconds = Math.max(0, (deadline - performance.now()) / 1e3);
    this.#problem = problemOf(context, goal);
  }

  get #small(): boolean {
    return isSmall(this.#context);
  }

  get #leftS(): number {
    return (this.#deadline - performance.now()) / 1e3;
  }

  /** `known`: a plan to start from. */
  async solve(known?: Counts): Promise<GoalOutcome> {
    const { settings } = this.#context;
    // Skipped for a large problem that minimizes latency: its relaxation has a curve for each option, so solving it
    // takes longer than its shadow prices save in column generation.
    if (this.#small || this.#goal.kind !== 'latency') {
      if (!(await this.#linear())) return this.#outcome(true);
      this.#start = this.#prices();
    }
    if (known !== undefined) this.#consider(known);
    // For many models, column generation finds better first plans than the greedy search.
    if (this.#small) this.#searched();
    this.#progress('first plan');
    while (this.#leftS > 0.02 && this.#gap() > settings.gap / 2) {
      const went = this.#small ? await this.#branch() : await this.#byColumns();
      if (went === 'impossible') return this.#outcome(this.#best === undefined);
      if (went === 'done') break;
    }
    return this.#outcome(false);
  }

  #outcome(impossible: boolean): GoalOutcome {
    const { counts, value = Number.POSITIVE_INFINITY } = this.#best ?? {};
    return {
      problem: this.#problem,
      counts,
      value,
      bound: this.#bound,
      impossible,
      method: this.#method,
      prices: this.#poolPrices(),
    };
  }

  #gap(): number {
    return relativeGap(this.#best?.value ?? Number.POSITIVE_INFINITY, this.#bound);
  }

  #progress(what: string): void {
    const { settings } = this.#context;
    if (this.#best === undefined) return settings.progress?.(`${what}: no plan yet`);
    settings.progress?.(`${what}: within ${(this.#gap() * 100).toFixed(1)} % of the best possible`);
  }

  /**
   * Solves relaxations in rounds and simulates the options of each solution before the next round. Returns false if no
   * plan is possible.
   */
  async #linear(): Promise<boolean> {
    for (let round = 0; ; round++) {
      const formulation = formulate(this.#problem);
      const solved = await solve(formulation.program, {
        timeLimitS: Math.max(LINEAR_MIN_S, this.#leftS),
        gap: 0,
        seed: this.#context.settings.seed,
        relaxed: true,
      });
      if (solved.status === 'infeasible') return false;
      if (solved.values.length === 0)
        throw new SchedulerError('solver', 'no solution within the time limit, not even of the relaxation');
      this.#relaxed = { formulation, solved };
      this.#raise(solved.objective);
      const fractions = formulation.replicas.map((column) => solved.values[column] ?? 0);
      const rounds = this.#small ? LINEAR_ROUNDS : LINEAR_ROUNDS_LARGE;
      if (round >= rounds || this.#leftS < this.#seconds / 2 || !this.#refine(fractions)) return true;
    }
  }

  #raise(bound: number): void {
    this.#bound = Math.max(this.#bound, tightened(bound, this.#problem));
  }

  /** Simulates the options that a solution uses. Returns false if none of them was still an estimate. */
  #refine(counts: Counts, untilDeadline = true): boolean {
    const { table } = this.#context;
    const wantLatency = this.#problem.settings.objective !== 'throughput';
    let changed = false;
    table.options.forEach((option, o) => {
      if ((counts[o] ?? 0) <= 1e-6 || (untilDeadline && this.#leftS <= 0)) return;
      if (table.simulateOption(option, wantLatency)) changed = true;
    });
    if (changed) this.#renew();
    return changed;
  }

  /** Called after a simulation: updates what plans may use, and the value of the best plan. */
  #renew(): void {
    this.#problem = problemOf(this.#context, this.#goal);
    if (this.#best !== undefined) this.#best = { ...this.#best, value: this.#value(this.#best.counts) };
  }

  #value(counts: Counts): number {
    return planValue(this.#problem, counts).value;
  }

  /** Simulates a plan and keeps it if it is the best. Returns true if an option was simulated. */
  #consider(counts: Counts): boolean {
    const changed = this.#refine(counts, false);
    const value = this.#value(counts);
    if (value < (this.#best?.value ?? Number.POSITIVE_INFINITY)) this.#best = { counts: [...counts], value };
    return changed;
  }

  /** Rounds the relaxation down to whole replicas, then fills and exchanges. */
  #searched(): void {
    const until = performance.now() + this.#seconds * EXCHANGE_SHARE * 1e3;
    const none = () => !Number.isFinite(this.#best?.value ?? Number.POSITIVE_INFINITY);
    for (let round = 0; round < SEARCH_ROUNDS && (none() || performance.now() < until); round++) {
      const { floor } = this.#problem;
      const fraction = (o: number) => this.#relaxed?.solved.values[this.#relaxed.formulation.replicas[o] ?? 0] ?? 0;
      const search = new Search(
        this.#problem,
        this.#problem.options.map((_, o) => Math.max(floor[o] ?? 0, Math.floor(fraction(o) + 1e-6))),
      );
      // There must be a plan even if no time is left.
      search.fill(Math.max(until, performance.now() + FILL_MIN_MS));
      search.exchange(until);
      if (!this.#consider(search.counts)) return;
    }
  }

  /** Solves the whole program by branch and cut. */
  async #branch(): Promise<'again' | 'done' | 'impossible'> {
    const { settings } = this.#context;
    const formulation = formulate(this.#problem);
    const timeLimitS = Math.max(0.05, Math.min(this.#leftS, this.#seconds * BRANCH_SHARE));
    const solved = await solve(formulation.program, { timeLimitS, gap: settings.gap / 2, seed: settings.seed });
    if (solved.status === 'infeasible') return 'impossible';
    this.#method = 'highs';
    this.#raise(solved.bound);
    if (solved.values.length === 0) return 'done';
    const counts = this.#problem.options.map((_, o) => Math.round(solved.values[formulation.replicas[o] ?? 0] ?? 0));
    const changed = this.#consider(counts);
    this.#progress('branch and cut');
    return changed ? 'again' : 'done';
  }

  /** Generates columns. When all used options were simulated, or time is short, chooses among the columns. */
  async #byColumns(): Promise<'again' | 'done' | 'impossible'> {
    this.#method = 'columns';
    if (this.#goal.kind === 'placed') return this.#branch();
    const late = this.#leftS < this.#seconds * (1 - REFINE_SHARE);
    const went = this.#goal.kind === 'share' ? await this.#shareByColumns(late) : await this.#chooseColumns(late);
    this.#progress('column generation');
    return went;
  }

  /**
   * `late`: true if time is short, so that configurations are chosen even if some options of the relaxation were not
   * simulated.
   */
  async #chooseColumns(late: boolean): Promise<'again' | 'done' | 'impossible'> {
    const columns = this.#columnsOf(this.#problem);
    const until = performance.now() + this.#leftS * 0.6e3;
    const { bound, values, missing, complete, prices } = await columns.relax(until, undefined, this.#start);
    this.#start = prices ?? this.#start;
    if (complete && missing) return 'impossible';
    this.#raise(bound);
    const changed = this.#refine(columns.fractions(values));
    if (changed && !late) return 'again';
    const exact = this.#columnsOf(this.#exact());
    await exact.relax(performance.now() + this.#leftS * 0.3e3, undefined, this.#start);
    const counts = await exact.choose(this.#leftS * 0.5, this.#context.settings.gap / 4);
    if (counts !== undefined) this.#consider(counts);
    return changed ? 'again' : 'done';
  }

  /** Opens column generation with all configurations that are known so far. */
  #columnsOf(problem: SolverProblem): Columns {
    const columns = new Columns(problem);
    if (this.#columns !== undefined) columns.adopt(this.#columns);
    if (this.#best !== undefined) columns.learn(this.#best.counts);
    this.#columns = columns;
    return columns;
  }

  async #shareByColumns(late: boolean): Promise<'again' | 'done'> {
    const search = new ShareSearch(this.#problem, this.#best?.counts, this.#start ?? []);
    const until = performance.now() + this.#leftS * 0.6e3;
    const { atMost, fractions } = await search.bound(-this.#bound, this.#fits, until);
    this.#fits = search.fits;
    this.#start = search.prices;
    this.#raise(-atMost);
    const changed = this.#refine(fractions);
    if (changed && !late) return 'again';
    const exact = new ShareSearch(this.#exact(), this.#best?.counts, this.#start);
    await exact.bound(atMost, this.#fits, performance.now() + this.#leftS * 0.3e3);
    const counts = await exact.whole(performance.now() + this.#leftS * 0.8e3);
    if (counts !== undefined) this.#consider(counts);
    return changed ? 'again' : 'done';
  }

  /** The problem without options that are still estimates, so that its plans reach their predicted values. */
  #exact(): SolverProblem {
    const { table } = this.#context;
    const wantLatency = this.#problem.settings.objective !== 'throughput';
    const usable = this.#problem.usable.map((one, o) => {
      const option = table.options[o];
      const known = option !== undefined && table.isExact(option, wantLatency);
      return known ? one : { rate: 0, curve: [] };
    });
    return { ...this.#problem, usable };
  }

  #poolPrices(): readonly PoolPrice[] {
    const { options, pools } = this.#problem;
    const prices = this.#relaxed === undefined ? (this.#start ?? []) : this.#prices();
    return packingRows(options, pools).map(({ pool, perGpu }, r) => ({ pool, perGpu, price: prices[r] ?? 0 }));
  }

  /** Shadow price of each packing row in the linear relaxation. */
  #prices(): number[] {
    const { formulation, solved } = this.#relaxed ?? {};
    if (formulation === undefined || solved === undefined) return [];
    return formulation.packing.map(({ row }) => Math.max(0, -(solved.duals[row] ?? 0)));
  }
}
