import { createHash } from 'node:crypto';
import * as z from 'zod';
import { offerSchema, type TemplateOffer } from '../../shared/deployment/answer.ts';
import { DeploymentError } from '../../shared/deployment/error.ts';
import { bindParameters, type Parameters } from '../../shared/deployment/parameters.ts';
import { SchedulerError } from '../errors.ts';
import { enginesOf, gpusOf, type Parallelism, spreadOf } from '../roofline/parallelism.ts';
import type { Pool } from '../solver/problem.ts';
import type { PlannerGateway } from './gateway.ts';
import type { LiveNode } from './nodes.ts';

const answerSchema = z.object({ offers: z.array(offerSchema).max(1000) });

/** The order that starts a model. */
export interface Choice {
  template: string;
  parameters: Parameters;
}

/**
 * Chooses the first template, by name, that accepts this model with this parallelism. Its parameter for the model is
 * `model`; see `parallelismParameters` for the rest. Its other parameters must have defaults.
 */
export function choose(
  offers: readonly TemplateOffer[],
  model: string,
  spread: Parallelism,
  gpus: number,
): Choice | undefined {
  for (const { template, parameters: specs } of offers) {
    if (specs.model?.type !== 'string') continue;
    const how = parallelismParameters(specs, spread, gpus);
    if (how === undefined) continue;
    const parameters = { model, ...how };
    if (isTaken(() => bindParameters(specs, parameters))) return { template, parameters };
  }
  return undefined;
}

/**
 * Converts a parallelism to parameters of a template; undefined if the template cannot express it. `tp`, `pp`, `dp`,
 * `sp`: numbers; a template without `tp` and `tp_size` uses all GPUs of its node. `tp_size`: tp × dp, as SGLang counts.
 * `ep`: a number is SGLang's --ep-size (tp × dp or 1); a string is vLLM's switch without its dashes. `prefill_tp`: of
 * the prefill engine of a pair.
 */
function parallelismParameters(
  specs: TemplateOffer['parameters'],
  spread: Parallelism,
  gpus: number,
): Parameters | undefined {
  const { decode, prefill } = enginesOf(spread);
  const { tp, pp, dp, ep, sp } = spreadOf(decode);
  if (prefill !== undefined && gpusOf(prefill) !== prefill.tp) return undefined;
  const wanted: [name: string, value: number | string, otherwise: boolean][] = [
    ['tp', tp, specs.tp_size !== undefined || gpusOf(spread) === gpus],
    ['tp_size', tp * dp, specs.tp !== undefined || gpusOf(spread) === gpus],
    ['pp', pp, pp === 1],
    ['dp', dp, dp === 1],
    ['sp', sp, sp === 1],
    ['ep', specs.ep?.type === 'integer' ? (ep ? tp * dp : 1) : ep ? EXPERTS_WHOLE : EXPERTS_CUT, !ep],
    ['prefill_tp', prefill?.tp ?? 1, prefill === undefined],
  ];
  // A template for pairs always starts two engines.
  if (prefill === undefined && specs.prefill_tp !== undefined) return undefined;
  if (wanted.some(([name, , otherwise]) => specs[name] === undefined && !otherwise)) return undefined;
  return Object.fromEntries(wanted.filter(([name]) => specs[name] !== undefined).map(([name, value]) => [name, value]));
}

/** vLLM's switch as a value, which has no leading dashes. */
const EXPERTS_WHOLE = 'enable-expert-parallel';
const EXPERTS_CUT = 'no-enable-expert-parallel';

function isTaken(bind: () => unknown): boolean {
  try {
    bind();
    return true;
  } catch (error) {
    if (error instanceof DeploymentError) return false;
    throw error;
  }
}

/** Most sessions with remembered templates; an agent reads its templates once. */
const REMEMBERED_MAX = 20_000;
/** Concurrent requests to agents. Each goes through a tunnel. */
const AT_ONCE = 16;

/** The templates of nodes; each session is asked once. */
export class Offers {
  readonly #gateway: PlannerGateway;
  readonly #known = new Map<string, readonly TemplateOffer[]>();

  constructor(gateway: PlannerGateway) {
    this.#gateway = gateway;
  }

  /** A node that does not answer is absent and is asked again in a later round. */
  async of(
    nodes: readonly LiveNode[],
    log: (line: string) => void,
  ): Promise<ReadonlyMap<string, readonly TemplateOffer[]>> {
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

/** Prefix of the ids of agents' pools. */
export const AGENT_POOL = 'agents: ';

/** Nodes with equal GPUs and equal templates share a pool. Its id contains both and is stable. */
export function agentPoolId(node: LiveNode, offers: readonly TemplateOffer[]): string {
  const hash = createHash('sha256').update(JSON.stringify(offers)).digest('hex').slice(0, 4);
  return `${AGENT_POOL}${node.pool} ${offers.map(({ template }) => template).join('+')}/${hash}`.slice(0, 200);
}

/** Pools of nodes that wait for a deployment, or run one of this controller's deployments. */
export function agentPools(nodes: readonly LiveNode[], offers: ReadonlyMap<string, readonly TemplateOffer[]>): Pool[] {
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
      allows: (model, spread) => choose(here, model, spread, node.gpus) !== undefined,
    };
    pools.set(id, { ...pool, nodes: pool.nodes + 1 });
  }
  return [...pools.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
}
