import type { World } from '../world/world.ts';
import { Cluster } from './cluster.ts';
import type { RegionPolicy } from './policy.ts';
import { Recorder, type RunResult } from './recorder.ts';
import { Job } from './server.ts';
import type { TaskSource } from './workload.ts';

/** A region that fails, and when it returns; seconds. */
export interface Outage {
  region: number;
  fromS: number;
  toS: number;
}

export interface RegionSimulation {
  world: World;
  source: TaskSource;
  policy: RegionPolicy;
  slots: number;
  slotS: number;
  outages?: readonly Outage[];
}

/** Most tasks that wait without a server; further tasks are dropped immediately. */
const HELD_MAX = 100_000;
/** Interval at which held tasks are retried, seconds. */
const TICK_S = 1;

type Course = Recorder['course'];

/**
 * Runs all tasks of the source through the regions. Ends when the last task is done, which the slots and the clients'
 * patience bound.
 */
export async function simulateRegions(simulation: RegionSimulation): Promise<RunResult & { course: Course }> {
  return new Run(simulation).run();
}

class Run {
  readonly #simulation: RegionSimulation;
  readonly #recorder: Recorder;
  readonly #cluster: Cluster;
  #held: Job[] = [];
  #incidents: { atS: number; region: number; dies: boolean }[];

  constructor(simulation: RegionSimulation) {
    this.#simulation = simulation;
    this.#recorder = new Recorder(simulation.world);
    this.#cluster = new Cluster(simulation.world, this.#recorder);
    this.#incidents = (simulation.outages ?? [])
      .flatMap(({ region, fromS, toS }) => [
        { atS: fromS, region, dies: true },
        { atS: toS, region, dies: false },
      ])
      .sort((a, b) => a.atS - b.atS);
  }

  async run(): Promise<RunResult & { course: Course }> {
    const { source, policy, slots, slotS } = this.#simulation;
    const cluster = this.#cluster;
    cluster.onIdle = policy.idle === undefined ? undefined : (server) => policy.idle?.(server, cluster);
    let task = source.next();
    let [slot, tickS] = [0, TICK_S];
    for (;;) {
      const slotAt = slot <= slots ? slot * slotS : Number.POSITIVE_INFINITY;
      const taskAt = task?.arrivalS ?? Number.POSITIVE_INFINITY;
      const tickAt = this.#held.length > 0 ? tickS : Number.POSITIVE_INFINITY;
      const incidentAt = this.#incidents[0]?.atS ?? Number.POSITIVE_INFINITY;
      const eventAt = cluster.events.nextS;
      const next = Math.min(slotAt, taskAt, tickAt, incidentAt, eventAt);
      if (next === Number.POSITIVE_INFINITY || (slot > slots && task === undefined && this.#isQuiet())) break;
      cluster.nowS = next;
      if (slotAt === next) await this.#slot(slot++);
      else if (incidentAt === next) this.#incident();
      else if (eventAt === next) cluster.runNext();
      else if (tickAt === next) this.#tick();
      else if (task !== undefined) {
        const job = new Job(task);
        this.#recorder.came(job);
        this.#place(job);
        task = source.next();
      }
      if (tickS <= cluster.nowS) tickS = cluster.nowS + TICK_S;
    }
    return { ...this.#recorder.result(policy.name, slotS), course: this.#recorder.course };
  }

  #isQuiet(): boolean {
    return this.#held.length === 0 && this.#cluster.servers.every((one) => one.running === undefined);
  }

  async #slot(slot: number): Promise<void> {
    const { policy, slots, slotS } = this.#simulation;
    const cluster = this.#cluster;
    for (const server of cluster.servers) cluster.settle(server);
    const counted = this.#recorder.slot(cluster.nowS, cluster.byRegion);
    if (slot < slots) await policy.slot?.({ slot, slotS, ...counted }, cluster);
  }

  #place(job: Job): void {
    const server = this.#simulation.policy.choose(job, this.#cluster);
    if (server !== undefined) this.#cluster.dispatch(job, server);
    else if (this.#held.length < HELD_MAX) this.#held.push(job);
    else this.#recorder.dropped(job);
  }

  /** Held tasks by deadline, then the largest first (section 5.2 of the paper). */
  #tick(): void {
    const held = this.#held.sort((a, b) => a.task.deadlineS - b.task.deadlineS || b.task.workS - a.task.workS);
    this.#held = [];
    this.#simulation.policy.holding?.(held, this.#cluster);
    for (const job of held) {
      if (job.task.deadlineS < this.#cluster.nowS) this.#recorder.dropped(job);
      else this.#place(job);
    }
  }

  #incident(): void {
    const incident = this.#incidents.shift();
    if (incident === undefined) return;
    if (!incident.dies) return this.#cluster.restore(incident.region);
    // The gateway detects the closed sockets immediately, and retries elsewhere.
    for (const job of this.#cluster.fail(incident.region)) this.#place(job);
  }
}
