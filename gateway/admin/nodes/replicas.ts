/**
 * Loads, unloads and moves model replicas by hand. The gateway finds the node, and sends it the same signed orders as
 * `/admin/nodes/{session}/deployment`.
 */
import * as z from 'zod';
import { chooseTemplate } from '../../../shared/deployment/choose-template.ts';
import { DeploymentError } from '../../../shared/deployment/deployment-error.ts';
import { ACCEPTS_LABEL, DEPLOYMENT_LABEL } from '../../../shared/deployment/deployment-labels.ts';
import {
  deploymentIdSchema,
  type LoadRequest,
  type UnloadRequest,
} from '../../../shared/deployment/deployment-order.ts';
import { type DeploymentState, deploymentStateSchema } from '../../../shared/deployment/order-reply.ts';
import { parametersSchema, templateNameSchema } from '../../../shared/deployment/template-parameters.ts';
import { modelSchema, type RegistryEntry, sessionSchema } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { quoteForMessage } from '../../../shared/openai/quote-for-message.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { recordIntent } from '../apply-change.ts';
import { askRegistry } from '../session-param.ts';
import {
  describeNode,
  drainMsSchema,
  newDeploymentId,
  orderNode,
  runningDeployment,
  startDeployment,
  stopDeployment,
} from './deployments.ts';
import { acceptsOrders, agentTooOldError } from './drain-node.ts';
import { answerNotUnderstoodError } from './send-order.ts';

/** Maximum idle nodes that are asked for their templates before a load is refused. */
const ASKED_MAX = 16;
/** Codes of errors after which the node has certainly not accepted. */
const IS_REFUSAL: ReadonlySet<string> = new Set([
  'deployment_refused',
  'unprocessable_content',
  'no_capacity',
  'session_over',
  'not_found',
]);
/** Maximum nodes that an error lists. */
const LISTED = 8;
/** Maximum nodes that are read from the registry. */
const NODES_MAX = 1_000;

const model = modelSchema.shape.id;
/** The model to start, and how. */
const startFields = {
  model,
  /** Only this template; absent: the node's first template that accepts the model. */
  template: templateNameSchema.optional(),
  /** Further parameters of the template. The gateway sets the parameter `model`. */
  parameters: parametersSchema.default({}),
  /** Id of the new deployment; absent: the gateway creates one. */
  id: deploymentIdSchema.optional(),
};
const loadSchema = z.strictObject({
  ...startFields,
  /** The idle node; absent: the gateway chooses one. */
  session: sessionSchema.optional(),
});
const unloadSchema = z.strictObject({
  model,
  /** The node that runs the model. It may be absent if only one node runs it. */
  session: sessionSchema.optional(),
  /**
   * The engine sleeps and keeps its node: at level 1 the weights stay in the machine's memory, at level 2 they are read
   * from disk again. The next request wakes it. Absent: the deployment ends, or the adapter is unloaded.
   */
  sleep: z.union([z.literal(1), z.literal(2)]).optional(),
  /** Maximum milliseconds to wait for running requests. */
  drain_ms: drainMsSchema,
});
const moveSchema = z.strictObject({
  ...startFields,
  /** The node that runs the model. It may be absent if only one node runs it. */
  from: sessionSchema.optional(),
  /** The idle node; absent: the gateway chooses one. */
  to: sessionSchema.optional(),
  drain_ms: drainMsSchema,
});
type Start = Pick<z.infer<typeof loadSchema>, keyof typeof startFields>;

const replicaSchema = z.object({
  object: z.literal('replica'),
  model: z.string(),
  session: z.string(),
  /**
   * The deployment that starts or ends. The session then ends, and the agent's next session has the deployment's id as
   * a label. Null: the model is loaded or unloaded in the running engine.
   */
  deployment: deploymentStateSchema.nullable(),
  /** The state that the model will have. Absent: see `deployment`. */
  state: modelSchema.shape.state.optional(),
});

const common = { role: 'provider', method: 'post', status: 202 } as const;

export const replicaRoutes: readonly AdminRoute[] = [
  route({
    ...common,
    path: '/replicas/load',
    summary:
      'Load a model: wake an engine that sleeps with it, load it as an adapter of a running model, or start it on an idle node that has a deployment template for it. 202: the agent accepted. Providers load on their own nodes.',
    body: loadSchema,
    answer: replicaSchema,
    run: loadReplica,
  }),
  route({
    ...common,
    path: '/replicas/unload',
    summary:
      'Unload a model from a node: the node finishes running requests, and becomes idle or sleeps. 202: the agent accepted. Providers unload from their own nodes.',
    body: unloadSchema,
    answer: replicaSchema,
    run: unloadReplica,
  }),
  route({
    ...common,
    path: '/replicas/move',
    summary:
      'Load a model on an idle node, and unload it from its present node as soon as the new node serves it. 202: the idle node accepted. If the new node does not serve within 24 h, the present node continues.',
    body: moveSchema,
    answer: replicaSchema.extend({
      /** The session that serves until the new one does. */
      from: z.string(),
    }),
    run: moveReplica,
  }),
];

type AnyCall = AdminCall<unknown, unknown>;

async function loadReplica(call: AdminCall<z.infer<typeof loadSchema>>): Promise<Response> {
  const { session, ...start } = call.body;
  const dormant = start.template === undefined ? await dormantNode(call, start.model, session) : undefined;
  if (dormant !== undefined) return changeModel(call, dormant, { action: 'load', model: start.model });
  return reply(call, { model: start.model, ...(await load(call, start, session, undefined)) });
}

/** The caller's node with a running engine that can load the model. */
async function dormantNode(call: AnyCall, id: string, session: string | undefined): Promise<RegistryEntry | undefined> {
  const nodes = await ownNodes(call, { model: id, ...(session === undefined ? {} : { session }) });
  return nodes.find(
    ({ state, connected, models }) =>
      state === 'SERVING' &&
      connected &&
      models.some((one) => one.id === id && (one.state === 'asleep' || one.state === 'on-disk')),
  );
}

/** Orders a node to load or unload a model in its running engine. */
async function changeModel(
  call: AnyCall,
  { session, models }: RegistryEntry,
  request: LoadRequest | UnloadRequest,
): Promise<Response> {
  if (!(await acceptsOrders(call.env, session))) throw agentTooOldError(session);
  const { model: id } = request;
  const what = { action: `replica.${request.action}`, object: session, before: models.find((one) => one.id === id) };
  const answer = await orderNode(call, session, request, { ...what, after: request });
  if (answer.kind !== 'model') throw answerNotUnderstoodError();
  return reply(call, { model: id, session, deployment: null, state: answer.state });
}

async function unloadReplica(call: AdminCall<z.infer<typeof unloadSchema>>): Promise<Response> {
  const { model: id, session, sleep, drain_ms: drainMs } = call.body;
  const entry = await nodeOf(call, id, session);
  const isAdapter = entry.models.some((one) => one.id === id && one.parent !== undefined);
  if (isAdapter && sleep !== undefined)
    throw new ApiError('unprocessable_content', `${quoteForMessage(id)} is an adapter: it is unloaded without sleep.`);
  if (isAdapter || sleep !== undefined)
    return changeModel(call, entry, {
      action: 'unload',
      model: id,
      drain_ms: drainMs,
      ...(sleep === undefined ? {} : { sleep }),
    });
  const current = await deploymentOf(call, entry, id);
  const deployment = await stopDeployment(call, entry.session, current, drainMs);
  return reply(call, { model: id, session: entry.session, deployment });
}

async function moveReplica(call: AdminCall<z.infer<typeof moveSchema>>): Promise<Response> {
  const { from, to, drain_ms: drainMs, ...start } = call.body;
  const entry = await nodeOf(call, start.model, from);
  const current = await deploymentOf(call, entry, start.model);
  const { session, deployment } = await load(call, start, to, entry.session);
  const move = {
    model: start.model,
    deployment: deployment.id,
    provider: (await oneNode(call, session))?.provider ?? entry.provider,
    fromDeployment: current.id,
    fromProvider: entry.provider,
    drainMs,
  };
  await recordIntent(call, { action: 'replica.move', object: entry.session, before: current, after: move });
  const isKept = await askRegistry(call.env, (registry) => registry.expectMove(move));
  if (!isKept)
    throw new ApiError(
      'conflict',
      `Session ${session} loads the model, but too many moves wait already: unload it from session ${entry.session} when session ${session} serves.`,
    );
  return reply(call, { model: start.model, session, deployment, from: entry.session });
}

function reply(call: AnyCall, body: object): Response {
  return call.c.json({ object: 'replica', ...body }, 202, { 'cache-control': 'no-store' });
}

/** Starts the model on `session`, or on the first idle node that accepts it. @throws ApiError */
async function load(
  call: AnyCall,
  start: Start,
  session: string | undefined,
  without: string | undefined,
): Promise<{ session: string; deployment: DeploymentState }> {
  const { model: id } = start;
  if (session !== undefined) return startOn(call, start, session);
  const idle = (await idleNodes(call, id)).filter((entry) => entry.session !== without);
  const reasons: string[] = [];
  for (const entry of idle.slice(0, ASKED_MAX)) {
    try {
      return await startOn(call, start, entry.session);
    } catch (error) {
      // After any other error, such as a time-out, the node may have accepted. Another node would then load the model
      // too.
      if (!(error instanceof ApiError) || !IS_REFUSAL.has(error.code)) throw error;
      reasons.push(`${entry.session}: ${error.message}`);
    }
  }
  const why =
    idle.length === 0
      ? 'no idle node accepts deployments: start an agent with --accept-deployments, or unload a model'
      : reasons.slice(0, LISTED).join(' ');
  throw new ApiError('deployment_refused', `No node can load ${quoteForMessage(id)}: ${why}.`);
}

async function startOn(
  call: AnyCall,
  { model: id, template, parameters, id: deploymentId = newDeploymentId() }: Start,
  session: string,
): Promise<{ session: string; deployment: DeploymentState }> {
  const described = await describeNode(call, session);
  const busy = runningDeployment(described);
  if (busy !== undefined) {
    const what = `deployment ${busy.id} of template ${busy.template} is ${busy.state}`;
    throw new ApiError('deployment_refused', `Session ${session} is busy: ${what}. Unload it first.`);
  }
  try {
    const chosen = chooseTemplate(described.offers, id, { template, parameters });
    return { session, deployment: await startDeployment(call, session, { id: deploymentId, ...chosen }) };
  } catch (error) {
    if (!(error instanceof DeploymentError)) throw error;
    throw new ApiError('unprocessable_content', `Session ${session} cannot load the model: ${error.message}.`);
  }
}

/** The caller's idle nodes. Nodes that store most of the model's weights come first. */
async function idleNodes(call: AnyCall, id: string): Promise<RegistryEntry[]> {
  const stored = ({ weights = [] }: RegistryEntry) => weights.find(({ name }) => name === id)?.percent ?? 0;
  return (await ownNodes(call, { state: 'JOIN' }))
    .filter(({ labels, connected, suspected }) => labels[ACCEPTS_LABEL] !== undefined && connected && !suspected)
    .sort((a, b) => stored(b) - stored(a));
}

/**
 * The caller's node that runs the model. @throws ApiError 404 if there is none; 409 if there are several and none was
 * named
 */
async function nodeOf(call: AnyCall, id: string, session: string | undefined): Promise<RegistryEntry> {
  const running = (await ownNodes(call, { model: id, ...(session === undefined ? {} : { session }) })).filter(
    ({ state, models }) =>
      (state === 'JOIN' || state === 'SERVING') && models.some((one) => one.id === id && one.state !== 'on-disk'),
  );
  const [only] = running;
  const ofProvider = call.account.role === 'operator' ? '' : ` of provider ${call.account.provider ?? '(none)'}`;
  if (only === undefined) {
    const where = session === undefined ? `No node${ofProvider}` : `No node${ofProvider} with session ${session}`;
    throw new ApiError('not_found', `${where} runs ${quoteForMessage(id)}.`);
  }
  if (running.length > 1) {
    const sessions = running.slice(0, LISTED).map((entry) => entry.session);
    throw new ApiError(
      'conflict',
      `${running.length} nodes${ofProvider} run ${quoteForMessage(id)}. Name one session: ${sessions.join(', ')}.`,
    );
  }
  return only;
}

/** @throws ApiError 409 if the node runs the model without a deployment */
async function deploymentOf(call: AnyCall, entry: RegistryEntry, id: string): Promise<DeploymentState> {
  const fixed = `Session ${entry.session} runs ${quoteForMessage(id)} by its owner's command, not by a deployment. Use sleep, or drain the node to end it.`;
  if (!deploys(entry)) throw new ApiError('deployment_refused', fixed);
  const deployment = runningDeployment(await describeNode(call, entry.session));
  if (deployment === undefined) throw new ApiError('deployment_refused', fixed);
  return deployment;
}

function deploys({ labels }: RegistryEntry): boolean {
  return labels[DEPLOYMENT_LABEL] !== undefined;
}

type Wanted = { state?: string; model?: string; session?: string };

/** Nodes that the caller may order: all for operators, otherwise those of the caller's provider. */
async function ownNodes(call: AnyCall, wanted: Wanted): Promise<RegistryEntry[]> {
  const { role, provider = '' } = call.account;
  const filter = { ...wanted, limit: NODES_MAX, ...(role === 'operator' ? {} : { provider }) };
  const { nodes } = await askRegistry(call.env, (registry) => registry.look(filter));
  return nodes.map(({ entry }) => entry);
}

async function oneNode(call: AnyCall, session: string): Promise<RegistryEntry | undefined> {
  return (await ownNodes(call, { session }))[0];
}
