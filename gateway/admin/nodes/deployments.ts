/**
 * Deployments on idle nodes: what a node offers to run, and orders to start and stop, signed with this gateway's key.
 */
import * as z from 'zod';
import type { RefusalCode } from '../../../shared/deployment/deployment-error.ts';
import {
  type DeploymentRequest,
  deploymentIdSchema,
  type StartRequest,
} from '../../../shared/deployment/deployment-order.ts';
import {
  type DeploymentState,
  deploymentStateSchema,
  offerSchema,
  type TemplateDescription,
} from '../../../shared/deployment/order-reply.ts';
import { parametersSchema, templateNameSchema } from '../../../shared/deployment/template-parameters.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import type { OrderReply } from '../../registry/sign-order.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { recordIntent } from '../apply-change.ts';
import { SESSION_PARAM, sessionOf } from '../session-param.ts';
import {
  type AcceptedAnswer,
  answerNotUnderstoodError,
  sendOrder,
  signOrderFor,
  type UnsignedReply,
} from './send-order.ts';

const PATH = '/nodes/:session/deployment';

/** Default time in which running requests may finish before a deployment stops. */
const DRAIN_MS = 60_000;
const DRAIN_MAX_MS = 86_400_000;
export const drainMsSchema = z.number().int().min(0).max(DRAIN_MAX_MS).default(DRAIN_MS);

const putSchema = z.strictObject({
  /**
   * Id of the deployment. A caller that chooses it can find the node's next session by it; absent: the gateway creates
   * one.
   */
  id: deploymentIdSchema.optional(),
  template: templateNameSchema,
  parameters: parametersSchema.default({}),
});
const deleteSchema = z.strictObject({ drain_ms: z.coerce.number().int().min(0).max(DRAIN_MAX_MS).default(DRAIN_MS) });

const answered = z.object({
  object: z.literal('deployment'),
  session: z.string(),
  /** The deployment that runs, is about to start, or failed last; null: none. */
  deployment: deploymentStateSchema.nullable(),
});

export const deploymentRoutes: readonly AdminRoute[] = [
  route({
    role: 'provider',
    method: 'get',
    path: PATH,
    params: SESSION_PARAM,
    summary: 'Return the deployment on a node, or the deployment templates that it can start if it is idle.',
    answer: answered.extend({ offers: z.array(offerSchema) }),
    run: readDeployment,
  }),
  route({
    role: 'provider',
    method: 'put',
    path: PATH,
    params: SESSION_PARAM,
    status: 202,
    summary:
      'Start a deployment template on an idle node. 202: the agent accepted; its session ends, and its next session has the label otela.deployment. Providers may use only their own nodes.',
    body: putSchema,
    answer: answered,
    run: putDeployment,
  }),
  route({
    role: 'provider',
    method: 'delete',
    path: PATH,
    params: SESSION_PARAM,
    status: 202,
    summary:
      'End the deployment on a node: it drains, its session ends, and its agent joins again as idle. 202: the agent accepted. Providers may use only their own nodes.',
    query: deleteSchema,
    answer: answered,
    run: deleteDeployment,
  }),
];

async function readDeployment(call: AdminCall): Promise<object> {
  const session = sessionOf(call);
  const { deployment = null, offers } = await describeNode(call, session);
  return { object: 'deployment', session, deployment, offers };
}

async function putDeployment(call: AdminCall<z.infer<typeof putSchema>>): Promise<Response> {
  const session = sessionOf(call);
  const { template, parameters, id = newDeploymentId() } = call.body;
  const deployment = await startDeployment(call, session, { id, template, parameters });
  return call.c.json({ object: 'deployment', session, deployment }, 202, { 'cache-control': 'no-store' });
}

async function deleteDeployment(call: AdminCall<unknown, z.infer<typeof deleteSchema>>): Promise<Response> {
  const session = sessionOf(call);
  const current = runningDeployment(await describeNode(call, session));
  if (current === undefined) throw new ApiError('not_found', `Session ${session} has no deployment.`);
  const deployment = await stopDeployment(call, session, current, call.query.drain_ms);
  return call.c.json({ object: 'deployment', session, deployment }, 202, { 'cache-control': 'no-store' });
}

type AnyCall = AdminCall<unknown, unknown>;

export function newDeploymentId(): string {
  return `dep-${crypto.randomUUID().slice(0, 18)}`;
}

/** Asks a node of the caller for its templates and its deployment. @throws ApiError */
export async function describeNode(call: AnyCall, session: string): Promise<TemplateDescription> {
  const answer = await send(call, session, await ownReply(call, session));
  if (answer.kind === 'described') return answer;
  throw answerNotUnderstoodError();
}

/** The deployment that runs on a node, starts or stops; undefined: none, or it failed. */
export function runningDeployment({ deployment }: TemplateDescription): DeploymentState | undefined {
  return deployment?.state === 'failed' ? undefined : deployment;
}

/** @throws ApiError unless the agent accepts the order */
export function startDeployment(
  call: AnyCall,
  session: string,
  start: Omit<StartRequest, 'action'>,
): Promise<DeploymentState> {
  const after = { id: start.id, template: start.template, parameters: start.parameters };
  return obey(call, session, { action: 'start', ...start }, { action: 'deployment.start', object: session, after });
}

/** @throws ApiError unless the agent accepts the order */
export function stopDeployment(
  call: AnyCall,
  session: string,
  before: DeploymentState,
  drainMs: number,
): Promise<DeploymentState> {
  const request: DeploymentRequest = { action: 'stop', id: before.id, drain_ms: drainMs };
  return obey(call, session, request, { action: 'deployment.stop', object: session, before });
}

async function obey(
  call: AnyCall,
  session: string,
  request: DeploymentRequest,
  what: Parameters<typeof recordIntent>[1],
): Promise<DeploymentState> {
  const answer = await orderNode(call, session, request, what);
  if (answer.kind !== 'accepted') throw answerNotUnderstoodError();
  return answer.deployment;
}

/**
 * Sends an order to a node of the caller. Writes the audit log before it sends the order, so that failed orders are in
 * the log too. @throws ApiError unless the agent accepts the order
 */
export async function orderNode(
  call: AnyCall,
  session: string,
  request: DeploymentRequest,
  what: Parameters<typeof recordIntent>[1],
): Promise<AcceptedAnswer> {
  const reply = await ownReply(call, session, request);
  if (reply.kind === 'signed') await recordIntent(call, what);
  return send(call, session, reply);
}

/**
 * Signs an order, or the question for the description. For a node of another provider, the error is the same as for a
 * node that does not exist. @throws ApiError 404
 */
async function ownReply(call: AnyCall, session: string, request?: DeploymentRequest): Promise<OrderReply> {
  const { role, provider } = call.account;
  const reply = await signOrderFor(call, session, request);
  const isOwn = provider !== undefined && reply.kind !== 'powerless' && reply.provider === provider;
  if (role === 'operator' || reply.kind === 'powerless' || isOwn) return reply;
  throw new ApiError('not_found', `Provider ${provider ?? '(none)'} has no session ${session}.`);
}

/** @throws ApiError unless the agent accepts the order */
async function send(call: AnyCall, session: string, reply: OrderReply): Promise<AcceptedAnswer> {
  if (reply.kind !== 'signed') throw unsigned(session, reply);
  return sendOrder(call, session, reply.order, codeOf);
}

function codeOf(code: RefusalCode): 'unprocessable_content' | 'deployment_refused' {
  return code === 'bad_parameters' || code === 'unknown_template' ? 'unprocessable_content' : 'deployment_refused';
}

function unsigned(session: string, reply: UnsignedReply): ApiError {
  switch (reply.kind) {
    case 'unknown':
      return new ApiError('not_found', `There is no session ${session}.`);
    case 'over':
      return new ApiError('session_over', `Session ${session} has ended.`);
    case 'foreign':
      return new ApiError(
        'deployment_refused',
        `Session ${session} was admitted by another institution. Only that institution can deploy on it.`,
      );
    case 'unreachable':
      return new ApiError('no_capacity', `The tunnel of session ${session} is not open at this gateway now.`);
    case 'deaf':
      return new ApiError('deployment_refused', `The agent of session ${session} does not accept deployments now.`);
    case 'powerless':
      return new ApiError('internal_error', reply.reason);
  }
}
