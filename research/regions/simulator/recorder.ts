import { PHASES } from '../world/hardware.ts';
import { TASK_TYPES } from '../world/tasks.ts';
import type { World } from '../world/world.ts';
import { type Job, MIGRATING, type Server, SWITCHING, WAKING } from './server.ts';

const JOULES_PER_KWH = 3.6e6;

/** Results of a run. Times in seconds, means over completed tasks. */
export interface RunResult {
  policy: string;
  arrived: number;
  completed: number;
  dropped: number;
  /** Of completed tasks: from the client's request to its response. */
  responseS: { mean: number; p50: number; p99: number };
  /** Response at `QUANTILES`: the distribution of Figure 8. */
  quantilesS: number[];
  /** Parts of the mean response. */
  waitS: number;
  computeS: number;
  switchS: number;
  migrateS: number;
  networkS: number;
  responseByTypeS: number[];
  /** Electricity of all servers, and by `PHASES`. */
  costUsd: number;
  costByPhaseUsd: number[];
  /** The part of `costUsd` in which servers woke, loaded a model or moved a task: the price of switching. */
  overheadUsd: number;
  energyKwh: number;
  energyByPhaseKwh: number[];
  /** (11): 1/(1+CV) of the active servers' use, mean over slots; its CDF follows from `balances`, ascending. */
  balance: number;
  balances: number[];
  /** Busy share of awake seconds; awake share of all seconds. */
  use: number;
  awake: number;
  /** Mean over slots of ‖A_k − A_{k−1}‖², A: shares of each origin's tasks by region. */
  shareChange: number;
  modelSwitches: number;
  wakes: number;
  migrations: number;
  retries: number;
}

/** 0.01 to 0.99. */
export const QUANTILES: readonly number[] = Array.from({ length: 50 }, (_, i) => (2 * i + 1) / 100);

/** Phases in which a server changes its state and serves nothing. */
const OVERHEAD = [WAKING, SWITCHING, MIGRATING] as const;

/** Counts and sums during a run. */
export class Recorder {
  readonly #world: World;
  readonly #regions: number;
  #responses = new Float32Array(4096);
  #completed = 0;
  #dropped = 0;
  #arrived = 0;
  #retries = 0;
  #switches = 0;
  #wakes = 0;
  #migrations = 0;
  readonly #sums = {
    response: 0,
    wait: 0,
    compute: 0,
    switch: 0,
    migrate: 0,
    network: 0,
    busy: 0,
    awake: 0,
    change: 0,
  };
  readonly #byType = TASK_TYPES.map(() => ({ sum: 0, count: 0 }));
  readonly #joules = PHASES.map(() => 0);
  readonly #costs = PHASES.map(() => 0);
  readonly #balances: number[] = [];
  #slots = 0;
  /** Electricity until the start of this slot. */
  #costBefore = 0;
  /** Current USD per joule, by region. */
  readonly #price: number[];
  /** `flows[origin * regions + region]` of this slot; `shares` of the last. */
  readonly #flows: Float64Array;
  readonly #shares: Float64Array;
  readonly #arrivals: number[][];
  readonly #routed: number[][];
  /** Seconds and number of all tasks by slot: the course of a run. */
  readonly course: { responseS: number; completed: number; dropped: number; awake: number }[] = [];
  #courseNow = { responseS: 0, completed: 0, dropped: 0, awake: 0 };

  constructor(world: World) {
    this.#world = world;
    this.#regions = world.topology.regions.length;
    this.#price = new Array<number>(this.#regions).fill(0);
    this.#flows = new Float64Array(this.#regions ** 2);
    this.#shares = new Float64Array(this.#regions ** 2);
    this.#arrivals = world.topology.regions.map(() => world.models.map(() => 0));
    this.#routed = world.topology.regions.map(() => world.models.map(() => 0));
  }

  came(job: Job): void {
    this.#arrived++;
    const line = this.#arrivals[job.task.origin];
    if (line !== undefined) line[job.task.model] = (line[job.task.model] ?? 0) + 1;
  }

  routed(job: Job, server: Server): void {
    const at = job.task.origin * this.#regions + server.region;
    this.#flows[at] = (this.#flows[at] ?? 0) + 1;
    const line = this.#routed[server.region];
    if (line !== undefined) line[job.task.model] = (line[job.task.model] ?? 0) + 1;
    if (job.attempts > 1) this.#retries++;
  }

  dropped(_job: Job): void {
    this.#dropped++;
    this.#courseNow.dropped++;
  }

  switched(): void {
    this.#switches++;
  }

  woken(): void {
    this.#wakes++;
  }

  migrated(): void {
    this.#migrations++;
  }

  completed(job: Job, server: Server, nowS: number): void {
    const { task } = job;
    const back = this.#world.topology.latencyS[server.region]?.[task.origin] ?? 0;
    const response = nowS + back - task.arrivalS;
    if (this.#completed === this.#responses.length) {
      const larger = new Float32Array(2 * this.#completed);
      larger.set(this.#responses);
      this.#responses = larger;
    }
    this.#responses[this.#completed++] = response;
    const sums = this.#sums;
    sums.response += response;
    const compute = job.serviceS + job.movedComputeS;
    sums.compute += compute;
    sums.switch += job.switchS;
    sums.migrate += job.migrateS;
    sums.network += 2 * back;
    sums.wait += response - compute - job.switchS - job.migrateS - 2 * back;
    const type = this.#byType[task.type];
    if (type !== undefined) {
      type.sum += response;
      type.count++;
    }
    this.#courseNow.responseS += response;
    this.#courseNow.completed++;
  }

  used(server: Server, seconds: number): void {
    const joules = seconds * (this.#world.kinds[server.kind]?.watts[server.phase] ?? 0);
    this.#joules[server.phase] = (this.#joules[server.phase] ?? 0) + joules;
    this.#costs[server.phase] = (this.#costs[server.phase] ?? 0) + joules * (this.#price[server.region] ?? 0);
  }

  /** Starts a slot at `nowS`, after all servers are settled. Returns the counts of the previous slot. */
  slot(
    nowS: number,
    byRegion: readonly (readonly Server[])[],
  ): { arrived: number[][]; routed: number[][]; costUsd: number } {
    for (let region = 0; region < this.#regions; region++)
      this.#price[region] = this.#world.prices.at(region, nowS) / JOULES_PER_KWH || 0;
    const taken = (counts: number[][]) =>
      counts.map((line) => {
        const copy = [...line];
        line.fill(0);
        return copy;
      });
    const spent = sum(this.#costs);
    const counted = {
      arrived: taken(this.#arrivals),
      routed: taken(this.#routed),
      costUsd: spent - this.#costBefore,
    };
    this.#costBefore = spent;
    if (nowS > 0) this.#close(byRegion.flat());
    return counted;
  }

  #close(servers: readonly Server[]): void {
    let [busy, awakeAll] = [0, 0];
    this.#balances.push(balanceOf(servers));
    for (const server of servers) {
      busy += server.busyS;
      awakeAll += server.awakeS;
      server.use = server.activeS > 0 ? server.busyS / server.activeS : 0;
      server.busyS = 0;
      server.awakeS = 0;
      server.activeS = 0;
    }
    this.#sums.busy += busy;
    this.#sums.awake += awakeAll;
    const change = this.#shareChange();
    // Before the first slot there are no shares to compare with.
    if (this.#slots > 0) this.#sums.change += change;
    this.#courseNow.awake = awakeAll / Math.max(1, servers.length);
    this.course.push(this.#courseNow);
    this.#courseNow = { responseS: 0, completed: 0, dropped: 0, awake: 0 };
    this.#slots++;
  }

  /** Origins without a task keep their previous shares. */
  #shareChange(): number {
    let change = 0;
    for (let origin = 0; origin < this.#regions; origin++) {
      const first = origin * this.#regions;
      let total = 0;
      for (let to = first; to < first + this.#regions; to++) total += this.#flows[to] ?? 0;
      if (total === 0) continue;
      for (let to = first; to < first + this.#regions; to++) {
        const share = (this.#flows[to] ?? 0) / total;
        change += (share - (this.#shares[to] ?? 0)) ** 2;
        this.#shares[to] = share;
        this.#flows[to] = 0;
      }
    }
    return change;
  }

  result(policy: string, slotS: number): RunResult {
    const n = Math.max(1, this.#completed);
    const sorted = this.#responses.slice(0, this.#completed).sort();
    const at = (q: number) => sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)] ?? 0;
    const sums = this.#sums;
    const slots = Math.max(1, this.#slots);
    return {
      policy,
      arrived: this.#arrived,
      completed: this.#completed,
      dropped: this.#dropped,
      responseS: { mean: sums.response / n, p50: at(0.5), p99: at(0.99) },
      quantilesS: QUANTILES.map(at),
      waitS: sums.wait / n,
      computeS: sums.compute / n,
      switchS: sums.switch / n,
      migrateS: sums.migrate / n,
      networkS: sums.network / n,
      responseByTypeS: this.#byType.map(({ sum, count }) => sum / Math.max(1, count)),
      costUsd: sum(this.#costs),
      costByPhaseUsd: [...this.#costs],
      overheadUsd: sum(OVERHEAD.map((phase) => this.#costs[phase] ?? 0)),
      energyKwh: sum(this.#joules) / JOULES_PER_KWH,
      energyByPhaseKwh: this.#joules.map((joules) => joules / JOULES_PER_KWH),
      balance: sum(this.#balances) / slots,
      balances: [...this.#balances].sort((a, b) => a - b),
      use: sums.busy / Math.max(1e-9, sums.awake),
      awake: sums.awake / Math.max(1, this.#world.servers.length * slots * slotS),
      shareChange: sums.change / Math.max(1, slots - 1),
      modelSwitches: this.#switches,
      wakes: this.#wakes,
      migrations: this.#migrations,
      retries: this.#retries,
    };
  }
}

/**
 * (11): 1/(1+CV) of the use of the active servers in a slot. A server counts by its active seconds, so that a
 * server that woke in the last second does not count like a server that served all slot. Without an active server it is
 * 1.
 */
export function balanceOf(servers: readonly Pick<Server, 'busyS' | 'activeS'>[]): number {
  let [busy, active, squares] = [0, 0, 0];
  for (const { busyS, activeS } of servers) {
    if (activeS <= 0) continue;
    busy += busyS;
    active += activeS;
    squares += busyS ** 2 / activeS;
  }
  if (busy <= 0) return 1;
  const mean = busy / active;
  const variance = Math.max(0, squares / active - mean ** 2);
  return 1 / (1 + Math.sqrt(variance) / mean);
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
