import { type DemandForecast, smoothed } from '../macro/forecast.ts';
import { DEFAULT_WEIGHTS, type MacroPlanner, type MacroWeights, taskUsd } from '../macro/problem.ts';
import { type Cluster, QUEUE_MAX } from '../simulator/cluster.ts';
import type { RegionPolicy, SlotStart } from '../simulator/policy.ts';
import { ASLEEP, type Job, type Server } from '../simulator/server.ts';
import { plannablePrices } from '../world/price.ts';
import { TASK_TYPES } from '../world/tasks.ts';
import { AWAKE_USE, keepAwake, wakeForHeld } from './keep-awake.ts';
import type { LayoutOptions } from './layout.ts';
import { migrateTo } from './migration.ts';
import { byType, countKinds, raiseToObserved, useOf } from './observed.ts';
import { DEFAULT_SCORE, type ScoreWeights, score } from './score.ts';

const TYPES = TASK_TYPES.length;

export interface TortaOptions {
  name?: string;
  macro: MacroPlanner;
  forecast: DemandForecast;
  weights?: Partial<MacroWeights>;
  layout?: Partial<LayoutOptions>;
  /** Weights of (7); false: only the local search chooses the server of a region. */
  score?: ScoreWeights | false;
  /** Slots by which servers wake ahead: the longest cold start. */
  aheadSlots?: number;
  /** True: servers sleep and wake. False: all stay awake with their models. */
  activation?: boolean;
  /** True: another server replaces the best by (7) if it costs less seconds. */
  localSearch?: boolean;
  /** Called for each task that gets a server; `delayS`: seconds until it would begin there, without the network. */
  chosen?: (job: Job, server: Server, delayS: number, cluster: Cluster) => void;
  /** True: a running task moves to an idle server of its region if that ends it sooner, in spite of the migration. */
  migration?: boolean;
}

/** 180 s of cold start are four slots of 45 s. */
const AHEAD_SLOTS = 4;
/** Regions of the plan that are compared for a task, in addition to the region of the turn. */
const OTHER_REGIONS = 3;
/**
 * Another region of the plan must be better by this many seconds, because shares are kept while the difference is
 * small.
 */
const DETOUR_S = 0.3;
/**
 * Another server of the region must be better than the best by (7) by this many seconds, network and price included.
 */
const SEARCH_S = 0.1;
/** Above this delay all regions are compared: a plan of averages did not predict this moment. */
const ESCAPE_S = 1;

interface Choice {
  server: Server | undefined;
  seconds: number;
  delayS: number;
}

/** TORTA: a macro planner sets shares by region each slot, and the micro layer chooses servers within regions. */
export function torta(options: TortaOptions): RegionPolicy {
  return new Torta(options);
}

class Torta implements RegionPolicy {
  readonly name: string;
  readonly #options: TortaOptions;
  readonly #weights: MacroWeights;
  readonly #score: ScoreWeights | false;
  #shares: Float64Array | undefined;
  /** Recent arrivals. */
  #seen: DemandForecast | undefined;
  /** Smooth weighted turns: the credit of each region for each origin and type. */
  #credit = new Float64Array(0);
  #prices: number[] = [];
  /** Regions of each row by their share, the largest first. */
  #ranked: number[][] = [];

  constructor(options: TortaOptions) {
    this.#options = options;
    this.#weights = { ...DEFAULT_WEIGHTS, ...options.weights };
    this.#score = options.score ?? DEFAULT_SCORE;
    this.name = options.name ?? `torta (${options.macro.name})`;
  }

  async slot({ slot, slotS, arrived, costUsd }: SlotStart, cluster: Cluster): Promise<void> {
    const { forecast, macro } = this.#options;
    const { world } = cluster;
    if (slot > 0) forecast.observe(arrived);
    this.#prices = plannablePrices(world.prices, cluster.alive.length, cluster.nowS);
    this.#seen ??= smoothed(world);
    if (slot > 0) this.#seen.observe(arrived);
    const seen = this.#seen.expected(slot, 0);
    const next = raiseToObserved(forecast.expected(slot, 0), seen);
    const plan = await macro.plan({
      world,
      demand: next.map((line) => byType(world.models, line)),
      servers: cluster.byRegion.map((servers) => countKinds(servers, world.kinds.length)),
      prices: this.#prices,
      backlogS: cluster.byRegion.map((servers) => servers.reduce((sum, one) => sum + one.backlogS, 0)),
      use: cluster.byRegion.map(useOf),
      slotS,
      arrived: arrived.map((line) => byType(world.models, line)),
      ahead: raiseToObserved(forecast.expected(slot, 1), seen).map((line) => byType(world.models, line)),
      costUsd,
      previous: this.#shares,
    });
    this.#shares = plan.shares;
    if (this.#credit.length !== plan.shares.length) this.#credit = new Float64Array(plan.shares.length);
    this.#rank(cluster.alive.length);
    if (this.#options.activation !== false) this.#activate(slot, slotS, next, seen, cluster);
  }

  #rank(regions: number): void {
    const shares = this.#shares ?? new Float64Array();
    this.#ranked = Array.from({ length: shares.length / regions }, (_, row) => {
      const used: number[] = [];
      for (let region = 0; region < regions; region++)
        if ((shares[row * regions + region] ?? 0) > 1e-3) used.push(region);
      const share = (region: number) => shares[row * regions + region] ?? 0;
      return used.sort((a, b) => share(b) - share(a) || a - b);
    });
  }

  /** Each region wakes servers for the highest demand that is expected while a server would be waking. */
  #activate(
    slot: number,
    slotS: number,
    next: readonly (readonly number[])[],
    seen: readonly (readonly number[])[],
    cluster: Cluster,
  ): void {
    const { world } = cluster;
    const regions = cluster.alive.length;
    const layout: LayoutOptions = {
      secondsPerUsd: this.#weights.secondsPerUsd,
      useMax: AWAKE_USE,
      meanWorkS: this.#weights.meanWorkS,
      slotS,
      gamma: 1,
      ...this.#options.layout,
    };
    const ahead = this.#options.aheadSlots ?? AHEAD_SLOTS;
    const most = next.map((line) => [...line]);
    for (let step = 1; step <= ahead; step++) {
      raiseToObserved(this.#options.forecast.expected(slot, step), seen).forEach((line, origin) => {
        line.forEach((count, model) => {
          const own = most[origin];
          if (own !== undefined && count > (own[model] ?? 0)) own[model] = count;
        });
      });
    }
    const tasks = cluster.alive.map(() => world.models.map(() => 0));
    most.forEach((line, origin) => {
      line.forEach((count, model) => {
        const row = (origin * TYPES + (world.models[model]?.type ?? 0)) * regions;
        for (let region = 0; region < regions; region++) {
          const own = tasks[region];
          if (own !== undefined) own[model] = (own[model] ?? 0) + count * (this.#shares?.[row + region] ?? 0);
        }
      });
    });
    keepAwake(cluster, tasks, this.#prices, layout);
  }

  choose(job: Job, cluster: Cluster): Server | undefined {
    const { origin, type } = job.task;
    const regions = cluster.alive.length;
    const row = origin * TYPES + type;
    const turn = this.#turn(row * regions, regions, cluster.alive);
    let best = turn < 0 ? NONE : this.#within(turn, job, cluster);
    let compared = 0;
    for (const region of this.#ranked[row] ?? []) {
      if (compared >= OTHER_REGIONS) break;
      if (region === turn || !cluster.alive[region]) continue;
      compared++;
      const other = this.#within(region, job, cluster);
      if (other.seconds < best.seconds - DETOUR_S) best = other;
    }
    if (best.server === undefined || best.delayS > ESCAPE_S) {
      for (let region = 0; region < regions; region++) {
        if (!cluster.alive[region]) continue;
        const other = this.#within(region, job, cluster);
        if (other.seconds < best.seconds - DETOUR_S) best = other;
      }
    }
    if (best.server !== undefined) {
      this.#paid(row * regions, best.server.region);
      this.#options.chosen?.(job, best.server, best.delayS, cluster);
    }
    return best.server;
  }

  /** Returns the region with the highest credit, after adding the row's shares to all credits. */
  #turn(first: number, regions: number, alive: readonly boolean[]): number {
    const shares = this.#shares;
    if (shares === undefined) return -1;
    const credit = this.#credit;
    let [best, most] = [-1, Number.NEGATIVE_INFINITY];
    for (let region = 0; region < regions; region++) {
      const share = shares[first + region] ?? 0;
      // Bounded, so that a region that was avoided for long is not flooded when it recovers.
      const owed = Math.min(2, Math.max(-2, (credit[first + region] ?? 0) + share));
      credit[first + region] = owed;
      if (share <= 0 || !alive[region] || owed <= most) continue;
      best = region;
      most = owed;
    }
    return best;
  }

  #paid(first: number, region: number): void {
    this.#credit[first + region] = (this.#credit[first + region] ?? 0) - 1;
  }

  /**
   * The server of a region for a task: the best by (7), unless another costs `SEARCH_S` less: seconds of network,
   * queue, loading and computation, and the electricity in seconds.
   */
  #within(region: number, job: Job, cluster: Cluster): Choice {
    const weights = this.#score;
    const search = this.#options.localSearch !== false;
    const { origin, model } = job.task;
    const network = 2 * cluster.latencyS(origin, region);
    const price = this.#prices[region] ?? 0;
    let [quickest, scored] = [NONE, NONE];
    let highest = Number.NEGATIVE_INFINITY;
    for (const server of cluster.byRegion[region] ?? []) {
      if (!server.alive || server.phase === ASLEEP || server.queued >= QUEUE_MAX || !cluster.fits(server, model))
        continue;
      const delayS = cluster.delayS(server, model);
      const service = cluster.serviceS(server, job);
      const seconds =
        network + delayS + service + this.#weights.secondsPerUsd * taskUsd(cluster.world, server.kind, service, price);
      if (seconds < quickest.seconds) quickest = { server, seconds, delayS };
      if (weights === false) continue;
      const own = score(server, job, cluster, weights);
      if (own <= highest) continue;
      highest = own;
      scored = { server, seconds, delayS };
    }
    if (weights === false) return quickest;
    return search && quickest.seconds < scored.seconds - SEARCH_S ? quickest : scored;
  }

  /**
   * Local search continues while tasks wait: a server without work takes the first task from the longest queue of its
   * region, if it has the task's model. Without such a queue it may take over a running task.
   */
  idle(server: Server, cluster: Cluster): void {
    if (this.#options.localSearch === false || this.#steal(server, cluster)) return;
    if (this.#options.migration !== false) migrateTo(server, cluster);
  }

  #steal(server: Server, cluster: Cluster): boolean {
    let [longest, backlogS]: [Server | undefined, number] = [undefined, 0];
    for (const other of cluster.byRegion[server.region] ?? []) {
      if (other.head?.task.model !== server.model || other.backlogS <= backlogS) continue;
      longest = other;
      backlogS = other.backlogS;
    }
    if (longest?.head === undefined) return false;
    const here = cluster.serviceS(server, longest.head);
    const there = Math.max(0, longest.freeS - cluster.nowS) + cluster.serviceS(longest, longest.head);
    if (here >= there) return false;
    cluster.steal(longest, server);
    return true;
  }

  /** The buffer wakes servers. */
  holding(held: readonly Job[], cluster: Cluster): void {
    wakeForHeld(held, cluster);
  }
}

const NONE: Choice = { server: undefined, seconds: Number.POSITIVE_INFINITY, delayS: Number.POSITIVE_INFINITY };
