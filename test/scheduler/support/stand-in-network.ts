/** Agents of two GPUs in memory, and a factory that follows each plan at once. */
import type { PlanFilePlacement } from '../../../scheduler/live/plan-file.ts';

interface Deployed {
  model: string;
  tp: number;
  pp: number;
}

interface Agent {
  session: string;
  gpuClass: string;
  deployed?: Deployed;
}

const OFFERS = [
  {
    template: 'vllm',
    parameters: {
      model: { type: 'string', allow: ['*'] },
      tp: { type: 'integer', allow: [1, 2] },
      pp: { type: 'integer', allow: [1, 2], default: 1 },
    },
  },
];

export class StandInNetwork {
  agents: Agent[] = [];
  /** True if no order succeeds. */
  failing = false;
  /** Replicas that change at a time. */
  wave = Number.POSITIVE_INFINITY;
  #sessions = 0;

  /** `classes`: one agent each. */
  constructor(classes: readonly string[]) {
    for (const gpuClass of classes) this.join(gpuClass);
  }

  join(gpuClass: string): void {
    this.agents.push({ session: this.#session(), gpuClass });
  }

  get deployed(): (Deployed & { session: string; gpuClass: string })[] {
    return this.agents.flatMap(({ session, gpuClass, deployed }) =>
      deployed === undefined ? [] : [{ session, gpuClass, ...deployed }],
    );
  }

  /** Ends the replicas that the plan lacks, then starts those that the network lacks. */
  follow(plan: readonly PlanFilePlacement[]): void {
    const missing = plan.flatMap(({ model, gpu, tp = 1, spread, replicas }) =>
      Array.from({ length: replicas }, () => ({ gpu, deployed: { model, tp, pp: spread?.pp ?? 1 } })),
    );
    let ended = 0;
    for (const agent of this.agents) {
      const { deployed, gpuClass } = agent;
      if (deployed === undefined) continue;
      const at = missing.findIndex(
        ({ gpu, deployed: one }) => gpu === gpuClass && JSON.stringify(one) === JSON.stringify(deployed),
      );
      if (at >= 0) missing.splice(at, 1);
      else if (ended++ < this.wave) Object.assign(agent, { session: this.#session(), deployed: undefined });
    }
    if (this.failing) return;
    for (const { gpu, deployed } of missing) {
      const idle = this.agents.find((agent) => agent.gpuClass === gpu && agent.deployed === undefined);
      if (idle === undefined) continue;
      Object.assign(idle, { session: this.#session(), deployed });
    }
  }

  /** The answer to a path of the gateway; undefined: another path. */
  answer(path: string): object | undefined {
    if (path.startsWith('/v1/registry/nodes')) return { object: 'list', data: this.agents.map(shown) };
    const [, session] = /^\/admin\/nodes\/(\w+)\/deployment$/.exec(path) ?? [];
    const agent = this.agents.find((one) => one.session === session);
    if (agent === undefined) return undefined;
    const { deployed } = agent;
    const deployment = deployed === undefined ? null : { id: idOf(agent), template: 'vllm', parameters: deployed };
    return { offers: OFFERS, deployment };
  }

  #session(): string {
    return String(this.#sessions++).padStart(26, 'a');
  }
}

const idOf = ({ session }: Agent): string => `otela-pool--0123456789ab-${session}`;

const shown = (agent: Agent): object => ({
  session: agent.session,
  state: agent.deployed === undefined ? 'JOIN' : 'SERVING',
  suspected: false,
  provider: 'lab',
  cluster: 'here',
  labels: agent.deployed === undefined ? { 'otela.accepts': 'vllm' } : { 'otela.deployment': idOf(agent) },
  models: agent.deployed === undefined ? [] : [{ id: agent.deployed.model, state: 'ready' }],
  hardware: { gpus: [{ class: agent.gpuClass, vram_mib: 81_920, count: 2 }] },
});
