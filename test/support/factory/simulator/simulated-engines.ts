/** Engines in simulated jobs: they load, answer lines of batches, drain, and appear at a gateway with a delay. */

import { noDemand } from '../../../../factory/demand/demand-source.ts';
import {
  CONTEXT_LABEL,
  FACTORY_LABEL,
  JOB_LABEL,
  type ModelDemand,
  type ServingNode,
} from '../../../../shared/factory/factory-exchange.ts';
import type { SimulatedCluster, SimulatedJob } from './simulated-cluster.ts';

export interface SimulatedModel {
  id: string;
  contexts: readonly string[];
  loadMs: number;
  /** Lines per second of one engine. */
  linesPerS: number;
  /** Number of concurrent requests at this time. */
  requestsAt(now: number): number;
}

interface Engine {
  readyAt: number;
  busyAt: number;
  drainAt?: number;
}

/** Delay until the registry learns of a node, and until it forgets it. */
const SEEN_MS = 3_000;
/** Duration of a drain, which waits for running streams. */
const DRAIN_MS = 10_000;

export class SimulatedEngines {
  readonly #clusters: readonly SimulatedCluster[];
  readonly #models: readonly SimulatedModel[];
  readonly #engines = new Map<string, Engine>();
  readonly lines = new Map<string, number>();
  readonly #askedAt = new Map<string, number>();
  /** GPU-ms that engines spent loading, working and idle. */
  readonly spent = { loading: 0, working: 0, idle: 0 };
  /** True for a job with an engine that cannot start. */
  broken: (job: SimulatedJob) => boolean = () => false;
  now = 0;

  constructor(clusters: readonly SimulatedCluster[], models: readonly SimulatedModel[]) {
    this.#clusters = clusters;
    this.#models = models;
  }

  modelOf(name: string): SimulatedModel | undefined {
    return this.#models.find(({ contexts }) => contexts.some((context) => name.includes(context)));
  }

  drain(session: string): void {
    const engine = this.#engines.get(session);
    if (engine !== undefined) engine.drainAt ??= this.now;
  }

  /** `key`: the key of the engine's job. */
  isBusy(key: string): boolean {
    const engine = this.#engines.get(key);
    return (
      engine !== undefined &&
      engine.readyAt <= this.now &&
      this.now - engine.busyAt <= SEEN_MS &&
      engine.drainAt === undefined
    );
  }

  /** GPUs of engines that are answering. */
  busyGpus(): number {
    return this.#running().reduce((sum, { key, job }) => sum + (this.isBusy(key) ? job.gpus : 0), 0);
  }

  step(now: number): void {
    const passed = now - this.now;
    this.now = now;
    const running = this.#running();
    const keys = new Set(running.map(({ key }) => key));
    for (const key of this.#engines.keys()) if (!keys.has(key)) this.#engines.delete(key);
    for (const model of this.#models) if (model.requestsAt(now) > 0) this.#askedAt.set(model.id, now);
    for (const { cluster, job, key } of running) {
      const model = this.modelOf(job.name);
      if (model === undefined) continue;
      const engine = this.#engines.get(key) ?? {
        readyAt: (job.began ?? now) + model.loadMs,
        busyAt: (job.began ?? now) + model.loadMs,
      };
      this.#engines.set(key, engine);
      this.#run(cluster, job, model, engine, passed);
    }
  }

  #running() {
    return this.#clusters.flatMap((cluster) =>
      cluster.running().map((job) => ({ cluster, job, key: cluster.keyOf(job) })),
    );
  }

  #run(cluster: SimulatedCluster, job: SimulatedJob, model: SimulatedModel, engine: Engine, passed: number): void {
    if (this.now < engine.readyAt) {
      this.spent.loading += passed * job.gpus;
      if (this.broken(job) && this.now - (job.began ?? this.now) >= model.loadMs / 2) cluster.end(job.id, 'failed');
      return;
    }
    if (job.cancelled !== undefined) return cluster.end(job.id, 'cancelled');
    if (engine.drainAt !== undefined) {
      this.spent.idle += passed * job.gpus;
      if (this.now - engine.drainAt >= DRAIN_MS) cluster.end(job.id, 'done');
      return;
    }
    const lines = this.lines.get(model.id) ?? 0;
    const work = lines > 0 || model.requestsAt(this.now) > 0;
    if (work) engine.busyAt = this.now;
    this.spent[work ? 'working' : 'idle'] += passed * job.gpus;
    this.lines.set(model.id, Math.max(0, lines - (model.linesPerS * passed) / 1_000));
  }

  /** The gateway's list of nodes. */
  nodes(factory: string): ServingNode[] {
    return this.#running().flatMap(({ job, key }): ServingNode[] => {
      const engine = this.#engines.get(key);
      const model = this.modelOf(job.name);
      if (engine === undefined || model === undefined || this.now - (job.began ?? this.now) < SEEN_MS) return [];
      const ready = this.now >= engine.readyAt + SEEN_MS;
      return [
        {
          session: key,
          state: engine.drainAt !== undefined ? 'draining' : ready ? 'ready' : 'loading',
          in_flight: this.isBusy(key) ? 8 : 0,
          idle_ms: ready ? this.now - engine.busyAt : 0,
          labels: { [FACTORY_LABEL]: factory, [CONTEXT_LABEL]: job.name, [JOB_LABEL]: key },
        },
      ];
    });
  }

  demand(): Map<string, ModelDemand> {
    return new Map(
      this.#models.map((model) => {
        const ready = this.#running().filter(
          ({ job, key }) =>
            this.modelOf(job.name) === model &&
            (this.#engines.get(key)?.readyAt ?? Number.POSITIVE_INFINITY) <= this.now,
        ).length;
        const requests = model.requestsAt(this.now);
        const asked = this.#askedAt.get(model.id);
        const lines = Math.ceil(this.lines.get(model.id) ?? 0);
        return [
          model.id,
          {
            ...noDemand(model.id),
            waiting: ready === 0 ? requests : 0,
            queued: ready > 0 ? Math.max(0, requests - 8 * ready) : 0,
            in_flight: Math.min(requests, 8 * ready),
            busy: ready === 0 ? 0 : Math.min(1, requests / (8 * ready)),
            ready_replicas: ready,
            ...(asked === undefined ? {} : { asked_ms_ago: this.now - asked }),
            ...(lines === 0 ? {} : { batch: { lines } }),
          },
        ];
      }),
    );
  }
}
