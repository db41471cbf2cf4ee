import { PREFIX_SAVING } from '../world/tasks.ts';
import type { World } from '../world/world.ts';
import { Events } from './events.ts';
import type { Recorder } from './recorder.ts';
import { ASLEEP, BUSY, IDLE, type Job, MIGRATING, Server, SWITCHING, WAKING } from './server.ts';

/** Most tasks that wait at one server: a minute or two of work. */
export const QUEUE_MAX = 16;

/** All servers of all regions, and their current state. */
export class Cluster {
  readonly world: World;
  readonly servers: Server[];
  readonly byRegion: Server[][];
  readonly events = new Events();
  /** True if the region works. */
  readonly alive: boolean[];
  nowS = 0;
  /** Grows whenever a server changes its model, opens or closes. */
  version = 0;
  /** Called when a server runs out of work. */
  onIdle: ((server: Server) => void) | undefined;
  readonly #recorder: Recorder;
  readonly #factors: (readonly number[])[];
  readonly #hosts: Server[][] = [];
  #hostsVersion = -1;

  constructor(world: World, recorder: Recorder) {
    this.world = world;
    this.#recorder = recorder;
    this.servers = world.servers.map((spec, id) => new Server(id, spec));
    this.alive = world.topology.regions.map(() => true);
    this.byRegion = this.alive.map((_, region) => this.servers.filter((one) => one.region === region));
    this.#factors = world.kinds.map(({ factor }) => world.models.map(({ type }) => factor[type] ?? 1));
  }

  /**
   * Servers that hold the model and are ready; if there are none, those that will be; if there are none, all open ones
   * that it fits. The same array until `version` changes.
   */
  hosts(model: number): readonly Server[] {
    if (this.#hostsVersion !== this.version) {
      this.#hosts.length = 0;
      this.#hostsVersion = this.version;
    }
    let known = this.#hosts[model];
    if (known === undefined) {
      const holding = this.servers.filter((one) => one.open && one.model === model);
      known = holding.filter((one) => one.phase !== WAKING);
      if (known.length === 0) known = holding;
      if (known.length === 0) known = this.servers.filter((one) => one.open && this.fits(one, model));
      this.#hosts[model] = known;
    }
    return known;
  }

  fits(server: Server, model: number): boolean {
    return (this.world.switchS[server.kind]?.[model] ?? Number.POSITIVE_INFINITY) < Number.POSITIVE_INFINITY;
  }

  latencyS(from: number, to: number): number {
    return this.world.topology.latencyS[from]?.[to] ?? Number.POSITIVE_INFINITY;
  }

  /** Seconds that the server computes the rest of the task. */
  serviceS(server: Server, job: Job): number {
    const { workS, model, prefix } = job.task;
    const seconds = job.left * workS * (this.#factors[server.kind]?.[model] ?? 1);
    return server.holdsPrefix(prefix) ? seconds * (1 - PREFIX_SAVING) : seconds;
  }

  /**
   * Seconds from now until the task would begin there, without the network: earlier tasks and a switch of the model.
   */
  delayS(server: Server, model: number): number {
    const free = Math.max(0, server.freeS - this.nowS) + server.backlogS;
    return server.lastModel === model ? free : free + (this.world.switchS[server.kind]?.[model] ?? 0);
  }

  /** Sends the task to that server now. */
  dispatch(job: Job, server: Server): void {
    job.reachedS = this.nowS + this.latencyS(job.task.origin, server.region);
    job.attempts++;
    this.#recorder.routed(job, server);
    this.#enqueue(job, server);
  }

  #enqueue(job: Job, server: Server): void {
    const { model } = job.task;
    job.switchS = server.lastModel === model ? 0 : (this.world.switchS[server.kind]?.[model] ?? 0);
    job.serviceS = this.serviceS(server, job);
    server.lastModel = model;
    server.push(job);
    server.backlogS += job.switchS + job.serviceS;
    if (server.phase === IDLE) this.#startNext(server);
  }

  /** Moves the first waiting task of `from` to `to`. */
  steal(from: Server, to: Server): void {
    const job = this.#take(from);
    if (job === undefined) return;
    job.reachedS = Math.max(job.reachedS, this.nowS + this.latencyS(from.region, to.region));
    this.#enqueue(job, to);
  }

  /** Seconds of service that a busy server still owes its task; 0: it is not busy. */
  remainingS(server: Server): number {
    return server.phase === BUSY ? Math.max(0, server.freeS - this.nowS) : 0;
  }

  /**
   * Moves the running task of `from` to `to`, which is idle and holds its model. Both servers are occupied for the
   * `migrationS` of the world. Does nothing for other servers.
   */
  migrate(from: Server, to: Server): void {
    const job = from.running;
    if (job === undefined || from.phase !== BUSY || to.phase !== IDLE || to.model !== job.task.model) return;
    const restS = this.remainingS(from);
    if (restS <= 0) return;
    const { migrationS } = this.world;
    job.movedComputeS += job.serviceS - restS;
    job.left *= restS / job.serviceS;
    job.migrateS += migrationS;
    this.#recorder.migrated();
    for (const server of [from, to]) {
      this.#enter(server, MIGRATING);
      server.freeS = this.nowS + migrationS;
    }
    from.running = undefined;
    to.running = job;
    to.freeS += this.serviceS(to, job);
    for (const server of [from, to]) this.#timer(server, this.nowS + migrationS);
  }

  #take(server: Server): Job | undefined {
    const job = server.shift();
    if (job === undefined) return undefined;
    server.backlogS = server.head === undefined ? 0 : server.backlogS - job.switchS - job.serviceS;
    if (server.head === undefined) server.lastModel = server.model;
    return job;
  }

  #startNext(server: Server): void {
    if (server.phase === WAKING) this.version++;
    for (;;) {
      const job = this.#take(server);
      if (job === undefined) {
        this.#enter(server, IDLE);
        server.idleSinceS = this.nowS;
        server.running = undefined;
        this.onIdle?.(server);
        return;
      }
      if (job.task.deadlineS < this.nowS) {
        this.#recorder.dropped(job);
        continue;
      }
      server.running = job;
      const beginsS = Math.max(this.nowS, job.reachedS);
      if (server.model === job.task.model) {
        job.switchS = 0;
        this.#serve(server, job, beginsS);
      } else this.#load(server, job, beginsS);
      return;
    }
  }

  #load(server: Server, job: Job, beginsS: number): void {
    const { model } = job.task;
    job.switchS = this.world.switchS[server.kind]?.[model] ?? 0;
    this.#recorder.switched();
    this.#enter(server, SWITCHING);
    server.model = model;
    if (server.head === undefined) server.lastModel = model;
    server.forget();
    this.version++;
    server.freeS = beginsS + job.switchS + job.serviceS;
    this.#timer(server, beginsS + job.switchS);
  }

  #serve(server: Server, job: Job, beginsS: number): void {
    this.#enter(server, BUSY);
    job.startedS = beginsS;
    job.serviceS = this.serviceS(server, job);
    server.remember(job.task.prefix, beginsS);
    server.freeS = beginsS + job.serviceS;
    this.#timer(server, server.freeS);
  }

  /** Starts to wake a sleeping server with that model; does nothing for other servers. */
  wake(server: Server, model: number): void {
    if (!server.alive || server.phase !== ASLEEP || !this.fits(server, model)) return;
    this.#enter(server, WAKING);
    server.model = model;
    server.lastModel = model;
    server.forget();
    server.freeS = this.nowS + server.coldStartS;
    this.version++;
    this.#recorder.woken();
    this.#timer(server, server.freeS);
  }

  /** Sends an idle server without a queue to sleep; does nothing for other servers. */
  sleep(server: Server): void {
    if (server.phase !== IDLE || server.queued > 0) return;
    this.#enter(server, ASLEEP);
    this.version++;
  }

  /** Makes an idle server load that model before a request needs it. */
  preload(server: Server, model: number): void {
    if (server.phase !== IDLE || server.model === model || !this.fits(server, model)) return;
    this.#enter(server, WAKING);
    server.model = model;
    server.lastModel = model;
    server.forget();
    server.freeS = this.nowS + (this.world.switchS[server.kind]?.[model] ?? 0);
    this.version++;
    this.#recorder.switched();
    this.#timer(server, server.freeS);
  }

  /** Fails all servers of the region, with their contents; returns the tasks that must move. */
  fail(region: number): Job[] {
    const lost: Job[] = [];
    this.alive[region] = false;
    this.version++;
    for (const server of this.byRegion[region] ?? []) {
      this.#enter(server, ASLEEP);
      server.alive = false;
      server.epoch++;
      if (server.running !== undefined) lost.push(restarted(server.running));
      server.running = undefined;
      for (let job = server.shift(); job !== undefined; job = server.shift()) lost.push(job);
      server.backlogS = 0;
      server.lastModel = server.model;
      server.forget();
    }
    return lost;
  }

  /** Restores the region: its servers start cold with their previous models. */
  restore(region: number): void {
    this.alive[region] = true;
    for (const server of this.byRegion[region] ?? []) {
      this.settle(server);
      server.alive = true;
      this.wake(server, server.model);
    }
  }

  /** Runs the earliest timer. */
  runNext(): void {
    this.events.pop();
    const server = this.servers[this.events.server];
    if (server === undefined || server.epoch !== this.events.epoch) return;
    const job = server.running;
    if ((server.phase === SWITCHING || server.phase === MIGRATING) && job !== undefined) {
      this.#serve(server, job, Math.max(this.nowS, job.reachedS));
      return;
    }
    if (server.phase === BUSY && job !== undefined) this.#recorder.completed(job, server, this.nowS);
    this.#startNext(server);
  }

  /** Updates energy and use to the current time. */
  settle(server: Server): void {
    const seconds = this.nowS - server.settledS;
    server.settledS = this.nowS;
    if (!server.alive || seconds <= 0) return;
    this.#recorder.used(server, seconds);
    if (server.phase === BUSY) server.busyS += seconds;
    if (server.phase !== ASLEEP) server.awakeS += seconds;
    if (server.phase !== ASLEEP && server.phase !== WAKING) server.activeS += seconds;
  }

  #enter(server: Server, phase: number): void {
    this.settle(server);
    server.phase = phase;
  }

  #timer(server: Server, atS: number): void {
    server.epoch++;
    this.events.push(atS, server.id, server.epoch);
  }
}

/** A task begins again if its server failed: the seconds of computation before count as waiting. */
function restarted(job: Job): Job {
  job.left = 1;
  job.movedComputeS = 0;
  job.migrateS = 0;
  return job;
}
