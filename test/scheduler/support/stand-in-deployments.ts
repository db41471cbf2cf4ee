import type { AgentSide, JobState } from '../../../scheduler/controller/agents.ts';
import { SchedulerError } from '../../../scheduler/errors.ts';
import { type Parallelism, spreadOf } from '../../../scheduler/roofline/parallelism.ts';
import type { Pool } from '../../../scheduler/solver/problem.ts';

interface Deployed {
  model: string;
  pool: string;
  tp: number;
  pp: number;
}

/** In-memory idle agents: an ordered deployment runs until it is stopped or removed. */
export class StandInDeployments implements AgentSide {
  readonly alive = new Map<string, Deployed>();
  started = 0;
  failing = false;
  readonly #pools: () => Pool[];

  constructor(pools: () => Pool[]) {
    this.#pools = pools;
  }

  async pools(): Promise<Pool[]> {
    return this.#pools();
  }

  async deployed(): Promise<never[]> {
    return [];
  }

  states(jobs: readonly { id: string }[]): Map<string, JobState> {
    return new Map(jobs.map(({ id }) => [id, this.alive.has(id) ? 'running' : 'gone']));
  }

  async start(pool: string, model: string, spread: Parallelism): Promise<string> {
    if (this.failing) throw new SchedulerError('launcher', 'node aaaaaaaa: 409: the agent refuses (busy)');
    const id = `d${1000 + this.started++}`;
    const { tp, pp } = spreadOf(spread);
    this.alive.set(id, { model, pool, tp, pp });
    return id;
  }

  async stop(id: string): Promise<void> {
    this.alive.delete(id);
  }

  /** As the registry shows them. */
  nodes(classOf: (pool: string) => string): object[] {
    return [...this.alive].map(([id, { model, pool }]) => ({
      session: id.padStart(26, 'a'),
      state: 'SERVING',
      suspected: false,
      provider: 'lab',
      cluster: 'here',
      labels: { 'otela.deployment': id },
      models: [{ id: model, state: 'ready' }],
      hardware: { gpus: [{ class: classOf(pool), vram_mib: 81_920, count: 2 }] },
    }));
  }
}
