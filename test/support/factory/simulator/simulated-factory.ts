/** Runs the factory's real rounds against a simulated cluster; only the simulation advances time. */
import type { FactoryConfig, ModelConfig } from '../../../../factory/config/schema.ts';
import { type PlacedModel, placedModels } from '../../../../factory/decisions/factory-world.ts';
import { emptyMemory, type Memory, memorySchema } from '../../../../factory/decisions/persisted-state.ts';
import { type RoundDependencies, type RoundResult, runRound } from '../../../../factory/life/run-round.ts';
import type { SimulatedCluster } from './simulated-cluster.ts';
import { SimulatedEngines, type SimulatedModel } from './simulated-engines.ts';

/** A kill at the worst moment: a scheduler has accepted a job, and the factory dies before it reads the answer. */
class Killed extends Error {}

export interface SimulationOptions {
  config: FactoryConfig;
  cluster: SimulatedCluster;
  /** Further clusters of the configuration. */
  others?: readonly SimulatedCluster[];
  models(placed: readonly PlacedModel[]): SimulatedModel[];
  /** True if the gateway answers. */
  gatewayAt?(now: number): boolean;
  /** Returns true if the next submission kills the factory. */
  killAt?(now: number): boolean;
  /**
   * Changes the factory's parts before each round, so that it breaks one of its rules. The invariants must detect that.
   */
  mutant?(parts: RoundDependencies): RoundDependencies;
}

export class SimulatedFactory {
  readonly engines: SimulatedEngines;
  readonly placed: PlacedModel[];
  readonly notes: { at: number; text: string }[] = [];
  kills = 0;
  now = 0;
  readonly #options: SimulationOptions;
  readonly #clusters: readonly SimulatedCluster[];
  #stored = '';
  #memory: Memory;

  constructor(options: SimulationOptions) {
    this.#options = options;
    this.#clusters = [options.cluster, ...(options.others ?? [])];
    this.placed = placedModels(options.config);
    this.engines = new SimulatedEngines(this.#clusters, options.models(this.placed));
    this.#memory = emptyMemory(0);
    this.#stored = JSON.stringify(this.#memory);
  }

  get memory(): Memory {
    return this.#memory;
  }

  model(id: string): ModelConfig | undefined {
    return this.#options.config.models.find((one) => one.id === id);
  }

  /**
   * Advances the clusters and their engines to `now`, and runs a round. Returns undefined if there was no round, or if
   * it was killed.
   */
  async step(now: number, withRound: boolean): Promise<RoundResult | undefined> {
    this.now = now;
    const { config } = this.#options;
    for (const cluster of this.#clusters) cluster.step(now);
    this.engines.step(now);
    if (!withRound) return undefined;
    const parts: RoundDependencies = {
      config,
      models: this.placed,
      launchers: new Map(this.#clusters.map((cluster) => [cluster.id, this.#launcher(cluster)])),
      memory: this.#memory,
      heard: () => ({
        demand: this.engines.demand(),
        nodes: this.#options.gatewayAt?.(now) === false ? undefined : this.engines.nodes(config.factory),
      }),
      now: () => now,
      remember: (memory) => {
        this.#stored = JSON.stringify(memory);
      },
      logTail: async (of, id) => {
        const jobs = this.#clusters.find((cluster) => cluster.id === of)?.jobs ?? [];
        return jobs.some((job) => job.id === id && job.began !== undefined) ? 'CUDA out of memory' : undefined;
      },
      logPath: () => '/logs/%j',
      note: ({ text }) => {
        this.notes.push({ at: now, text });
        if (this.notes.length > 5_000) this.notes.shift();
      },
    };
    try {
      const result = await runRound(this.#options.mutant?.(parts) ?? parts);
      for (const { session } of result.drains) this.engines.drain(session);
      return result;
    } catch (error) {
      if (!(error instanceof Killed)) throw error;
      this.kills += 1;
      this.#memory = memorySchema.parse(JSON.parse(this.#stored));
      return undefined;
    }
  }

  /** Wraps a cluster so that a kill happens after the scheduler has accepted the job. */
  #launcher(cluster: SimulatedCluster): SimulatedCluster {
    const { killAt } = this.#options;
    const now = this.now;
    return new Proxy(cluster, {
      get(target, name) {
        if (name !== 'submit') {
          const value: unknown = Reflect.get(target, name, target);
          return typeof value === 'function' ? value.bind(target) : value;
        }
        return async (submission: Parameters<SimulatedCluster['submit']>[0]) => {
          const ids = await target.submit(submission);
          if (killAt?.(now) === true) throw new Killed();
          return ids;
        };
      },
    });
  }
}
