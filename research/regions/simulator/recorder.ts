import { PHASES } from '../world/hardware.ts';
import { TASK_TYPES } from '../world/tasks.ts';
import type { World } from '../world/world.ts';
import type { Job, Server } from './server.ts';

const JOULES_PER_KWH = 3.6e6;

/** Results of a run. Times in seconds, means over completed tasks. */
export interface RunResult {
  policy: string;
  arrived: number;
  completed: number;
  dropped: number;
  /** Of completed tasks: from the client's request to its response. */
  responseS: { mean: number; p50: number; p99: number };
  /** Parts of the mean response. */
  waitS: number;
  computeS: number;
  switchS: number;
  networkS: number;
  responseByTypeS: number[];
  /** Of all servers, and by `PHASES`. */
  costUsd: number;
  energyKwh: number;
  energyByPhaseKwh: number[];
  /** 1/(1+CV) of the regions' use of their awake servers, mean over slots. */
  balance: number;
  /** Busy share of awake seconds; awake share of all seconds. */
  use: number;
  awake: number;
  /** Mean over slots of ‖A_k − A_{k−1}‖², A: shares of each origin's tasks by region. */
  shareChange: number;
  modelSwitches: number;
  wakes: number;
  retries: number;
}

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
  readonly #sums = {
    response: 0,
    wait: 0,
    compute: 0,
    switch: 0,
    network: 0,
    balance: 0,
    busy: 0,
    awake: 0,
    change: 0,
  };
  readonly #byType = TASK_TYPES.map(() => ({ sum: 0, count: 0 }));
  readonly #joules = PHASES.map(() => 0);
  #cost = 0;
  #slots = 0;
  /** Current USD per joule, by region. */
  readonly #price: number[];
  /** `flows[origin * regions + region]` of this slot; `shares` of the last. */
  readonly #flows: Float64Array;
  readonly #shares: Float64Array;
  readonly #arrivals: number[][];
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
  }

  came(job: Job): void {
    this.#arrived++;
    const line = this.#arrivals[job.task.origin];
    if (line !== undefined) line[job.task.model] = (line[job.task.model] ?? 0) + 1;
  }

  routed(job: Job, server: Server): void {
    const at = job.task.origin * this.#regions + server.region;
    this.#flows[at] = (this.#flows[at] ?? 0) + 1;
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
    sums.compute += job.serviceS;
    sums.switch += job.switchS;
    sums.network += 2 * back;
    sums.wait += response - job.serviceS - job.switchS - 2 * back;
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
    this.#cost += joules * (this.#price[server.region] ?? 0);
  }

  /** Starts a slot at `nowS`, after all servers are settled. Returns the arrivals of the previous slot. */
  slot(nowS: number, byRegion: readonly (readonly Server[])[]): number[][] {
    for (let region = 0; region < this.#regions; region++)
      this.#price[region] = this.#world.prices.at(region, nowS) / JOULES_PER_KWH || 0;
    const arrived = this.#arrivals.map((line) => [...line]);
    for (const line of this.#arrivals) line.fill(0);
    if (nowS > 0) this.#close(byRegion);
    return arrived;
  }

  #close(byRegion: readonly (readonly Server[])[]): void {
    const uses: number[] = [];
    let [awakeAll, seconds] = [0, 0];
    for (const servers of byRegion) {
      let [busy, awake] = [0, 0];
      for (const server of servers) {
        busy += server.busyS;
        awake += server.awakeS;
        server.busyS = 0;
        server.awakeS = 0;
      }
      seconds += servers.length;
      if (awake > 0) uses.push(busy / awake);
      this.#sums.busy += busy;
      awakeAll += awake;
    }
    this.#sums.awake += awakeAll;
    this.#sums.balance += 1 / (1 + variation(uses));
    const change = this.#shareChange();
    // Before the first slot there are no shares to compare with.
    if (this.#slots > 0) this.#sums.change += change;
    this.#courseNow.awake = awakeAll / Math.max(1, seconds);
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
      waitS: sums.wait / n,
      computeS: sums.compute / n,
      switchS: sums.switch / n,
      networkS: sums.network / n,
      responseByTypeS: this.#byType.map(({ sum, count }) => sum / Math.max(1, count)),
      costUsd: this.#cost,
      energyKwh: this.#joules.reduce((sum, joules) => sum + joules, 0) / JOULES_PER_KWH,
      energyByPhaseKwh: this.#joules.map((joules) => joules / JOULES_PER_KWH),
      balance: sums.balance / slots,
      use: sums.busy / Math.max(1e-9, sums.awake),
      awake: sums.awake / Math.max(1, this.#world.servers.length * slots * slotS),
      shareChange: sums.change / Math.max(1, slots - 1),
      modelSwitches: this.#switches,
      wakes: this.#wakes,
      retries: this.#retries,
    };
  }
}

/** Standard deviation over mean. */
function variation(values: readonly number[]): number {
  const n = Math.max(1, values.length);
  const mean = values.reduce((sum, value) => sum + value, 0) / n;
  if (mean <= 0) return 0;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / n;
  return Math.sqrt(variance) / mean;
}
