import { createHash } from 'node:crypto';
import * as z from 'zod';
import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import { offerSchema, type TemplateOffer } from '../../shared/deployment/order-reply.ts';
import {
  bindParameters,
  type Parameters,
  parametersSchema,
  templateNameSchema,
} from '../../shared/deployment/template-parameters.ts';
import { SchedulerError } from '../errors.ts';
import { enginesOf, gpusOf, type Parallelism, spreadOf } from '../roofline/parallelism.ts';
import type { Pool } from '../solver/planning-problem.ts';
import type { PlacementNode } from './live-nodes.ts';
import type { PlannerGateway } from './planner-gateway.ts';

const answerSchema = z.object({
  offers: z.array(offerSchema).max(1000),
  /** The deployment that the node runs now; old agents do not report it. */
  deployment: z
    .object({ id: z.string().max(64), template: templateNameSchema, parameters: parametersSchema })
    .nullish(),
});
type Description = z.infer<typeof answerSchema>;

/** The template and parameters with which an order starts a model. */
interface Choice {
  template: string;
  parameters: Parameters;
}

/**
 * Chooses the first template, by name, that accepts this model with this parallelism. The template's parameter for the
 * model is called `model`; `parallelismParameters` describes the parameters for parallelism. All other parameters of
 * the template must have defaults.
 */
function choose(
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

/** The value for vLLM's switch `--enable-expert-parallel`, without its dashes. */
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

/** Returns the parallelism of the running deployment: the inverse of `parallelismParameters`. */
export function deployedSpread({ offers, deployment }: Description, gpus: number): Parallelism {
  const specs = offers.find(({ template }) => template === deployment?.template)?.parameters ?? {};
  const defaults = Object.entries(specs).flatMap(([name, spec]) =>
    spec.default === undefined ? [] : [[name, spec.default] as const],
  );
  const parameters: Parameters = { ...Object.fromEntries(defaults), ...deployment?.parameters };
  const numberOf = (name: string) => (typeof parameters[name] === 'number' ? parameters[name] : undefined);
  const { pp, dp, sp } = { pp: numberOf('pp') ?? 1, dp: numberOf('dp') ?? 1, sp: numberOf('sp') ?? 1 };
  const tpSize = numberOf('tp_size');
  const prefillTp = numberOf('prefill_tp');
  const tp = numberOf('tp') ?? (tpSize ?? (gpus - (prefillTp ?? 0)) / (pp * sp)) / dp;
  const { ep = 1 } = parameters;
  return {
    tp,
    ...(pp > 1 ? { pp } : {}),
    ...(dp > 1 ? { dp } : {}),
    ...(sp > 1 ? { sp } : {}),
    ...(ep === EXPERTS_WHOLE || (typeof ep === 'number' && ep > 1) ? { ep: true } : {}),
    ...(prefillTp === undefined ? {} : { prefill: { tp: prefillTp } }),
  };
}

/**
 * Maximum number of sessions with a remembered description. A description does not change, because an agent reads its
 * templates only at its start.
 */
const REMEMBERED_MAX = 20_000;
/** Maximum number of concurrent requests to agents. Each request uses a tunnel. */
const AT_ONCE = 16;

/** The deployment and the templates of each node. A session is asked once for each deployment that it runs. */
export class DeploymentDescriptions {
  readonly #gateway: PlannerGateway;
  readonly #known = new Map<string, Description>();

  constructor(gateway: PlannerGateway) {
    this.#gateway = gateway;
  }

  /** A node that does not answer is missing in the result, and is asked again in a later round. */
  async of(nodes: readonly PlacementNode[], log: (line: string) => void): Promise<ReadonlyMap<string, Description>> {
    const waiting = nodes.filter(({ session, deployment }) => {
      const known = this.#known.get(session);
      return known === undefined || (deployment !== undefined && known.deployment?.id !== deployment);
    });
    if (this.#known.size + waiting.length > REMEMBERED_MAX) this.#known.clear();
    await Promise.all(
      Array.from({ length: Math.min(AT_ONCE, waiting.length) }, async () => {
        for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) await this.#ask(node, log);
      }),
    );
    return this.#known;
  }

  async #ask({ session }: PlacementNode, log: (line: string) => void): Promise<void> {
    const path = `/admin/nodes/${session}/deployment`;
    try {
      this.#known.set(session, answerSchema.parse(await this.#gateway.get(path)));
    } catch (error) {
      if (!(error instanceof SchedulerError || error instanceof z.ZodError)) throw error;
      log(`node ${session.slice(0, 8)} does not list its templates and is skipped: ${error.message}`);
    }
  }
}

/**
 * Id of the pool of a node. Nodes with equal GPUs and equal templates share a pool. The id is computed from GPUs and
 * templates, so it is stable.
 */
export function agentPoolId(node: PlacementNode, offers: readonly TemplateOffer[]): string {
  const hash = createHash('sha256').update(JSON.stringify(offers)).digest('hex').slice(0, 4);
  return `agents: ${node.pool} ${offers.map(({ template }) => template).join('+')}/${hash}`.slice(0, 200);
}

/** Pools of nodes that wait for a deployment, or that run a deployment that the plan may move. */
export function agentPools(nodes: readonly PlacementNode[], known: ReadonlyMap<string, Description>): Pool[] {
  const pools = new Map<string, Pool>();
  for (const node of nodes) {
    const here = known.get(node.session)?.offers ?? [];
    if (here.length === 0) continue;
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
