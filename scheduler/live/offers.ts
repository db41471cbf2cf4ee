import { createHash } from 'node:crypto';
import * as z from 'zod';
import { type Offer, offerSchema } from '../../shared/deployment/answer.ts';
import { DeploymentError } from '../../shared/deployment/error.ts';
import { bindParameters, type Parameters } from '../../shared/deployment/parameters.ts';
import { SchedulerError } from '../errors.ts';
import type { Pool } from '../solver/problem.ts';
import type { Gateway } from './gateway.ts';
import type { LiveNode } from './observed.ts';

const answerSchema = z.object({ offers: z.array(offerSchema).max(1000) });

/** What is sent to have a model run. */
export interface Choice {
  template: string;
  parameters: Parameters;
}

/**
 * The first template, by name, that takes this model at this parallelism. It names the model `model` and the parallelism `tp`; one without
 * `tp` stands for all GPUs of its node. What else it has must have defaults.
 */
export function choose(offers: readonly Offer[], model: string, tp: number, gpus: number): Choice | undefined {
  for (const { template, parameters: specs } of offers) {
    if (specs.model?.type !== 'string') continue;
    if (specs.tp === undefined && tp !== gpus) continue;
    const parameters = { model, ...(specs.tp === undefined ? {} : { tp }) };
    if (isTaken(() => bindParameters(specs, parameters))) return { template, parameters };
  }
  return undefined;
}

function isTaken(bind: () => unknown): boolean {
  try {
    bind();
    return true;
  } catch (error) {
    if (error instanceof DeploymentError) return false;
    throw error;
  }
}

/** Sessions whose templates are remembered: an agent reads them once. */
const REMEMBERED_MAX = 20_000;
/** Asked at once: each question goes through a tunnel. */
const AT_ONCE = 16;

/** What nodes would run, asked of each session once. */
export class Offers {
  readonly #gateway: Gateway;
  readonly #known = new Map<string, readonly Offer[]>();

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  /** Those that do not answer are absent: such a node is for a later round. */
  async of(nodes: readonly LiveNode[], log: (line: string) => void): Promise<ReadonlyMap<string, readonly Offer[]>> {
    const waiting = nodes.filter(({ session }) => !this.#known.has(session));
    if (this.#known.size + waiting.length > REMEMBERED_MAX) this.#known.clear();
    await Promise.all(
      Array.from({ length: Math.min(AT_ONCE, waiting.length) }, async () => {
        for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) await this.#ask(node, log);
      }),
    );
    return this.#known;
  }

  async #ask({ session }: LiveNode, log: (line: string) => void): Promise<void> {
    const path = `/admin/nodes/${session}/deployment`;
    try {
      this.#known.set(session, answerSchema.parse(await this.#gateway.get(path)).offers);
    } catch (error) {
      if (!(error instanceof SchedulerError || error instanceof z.ZodError)) throw error;
      log(`node ${session.slice(0, 8)} does not say what it would run, and is left out: ${error.message}`);
    }
  }
}

/** Begins the ids of pools of agents. */
export const AGENT_POOL = 'agents: ';

/** Nodes with equal GPUs and equal templates: their pool's id says both, and is the same next time. */
export function agentPoolId(node: LiveNode, offers: readonly Offer[]): string {
  const hash = createHash('sha256').update(JSON.stringify(offers)).digest('hex').slice(0, 4);
  return `${AGENT_POOL}${node.pool} ${offers.map(({ template }) => template).join('+')}/${hash}`.slice(0, 200);
}

/** Pools of nodes that wait for a deployment, or were given one by this controller. */
export function agentPools(nodes: readonly LiveNode[], offers: ReadonlyMap<string, readonly Offer[]>): Pool[] {
  const pools = new Map<string, Pool>();
  for (const node of nodes) {
    const here = offers.get(node.session);
    if (here === undefined || here.length === 0) continue;
    const id = agentPoolId(node, here);
    const pool = pools.get(id) ?? {
      id,
      gpu: node.gpu,
      nodes: 0,
      gpusPerNode: node.gpus,
      oneEngine: true,
      tier: node.tier,
      allows: (model, tp) => choose(here, model, tp, node.gpus) !== undefined,
    };
    pools.set(id, { ...pool, nodes: pool.nodes + 1 });
  }
  return [...pools.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
}
