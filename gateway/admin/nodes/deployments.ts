/**
 * Deployments on idle nodes: what a node offers to run, and orders to start and stop, signed with this gateway's key.
 */
import * as z from 'zod';
import type { RefusalCode } from '../../../shared/deployment/deployment-error.ts';
import { type DeploymentRequest, deploymentIdSchema } from '../../../shared/deployment/deployment-order.ts';
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

const putSchema = z.strictObject({
  /**
   * Id of the deployment. A caller that chooses it can find the node's next session by it; absent: the gateway creates
   * one.
   */
  id: deploymentIdSchema.optional(),
  template: templateNameSchema,
  parameters: parametersSchema.default({}),
});
const deleteSchema = z.strictObject({ drain_ms: z.coerce.number().int().min(0).max(86_400_000).default(DRAIN_MS) });

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
    role: 'operator',
    method: 'put',
    path: PATH,
    params: SESSION_PARAM,
    status: 202,
    summary:
      'Start a deployment template on an idle node. 202: the agent accepted; its session ends, and its next session has the label otela.deployment.',
    body: putSchema,
    answer: answered,
    run: putDeployment,
  }),
  route({
    role: 'operator',
    method: 'delete',
    path: PATH,
    params: SESSION_PARAM,
    status: 202,
    summary:
      'End the deployment on a node: it drains, its session ends, and its agent joins again as idle. 202: the agent accepted.',
    query: deleteSchema,
    answer: answered,
    run: deleteDeployment,
  }),
];

async function readDeployment(call: AdminCall): Promise<object> {
  const session = sessionOf(call);
  const { account } = call;
  const reply = await signOrderFor(call, session);
  const provider = 'provider' in reply ? reply.provider : undefined;
  // For a node of another provider, the response is the same as for a node that does not exist.
  if (account.role !== 'operator' && account.provider !== provider) throw unknown(session);
  const { deployment = null, offers } = describedIn(await send(call, session, reply));
  return { object: 'deployment', session, deployment, offers };
}

async function putDeployment(call: AdminCall<z.infer<typeof putSchema>>): Promise<Response> {
  const session = sessionOf(call);
  const { template, parameters, id = `dep-${crypto.randomUUID().slice(0, 18)}` } = call.body;
  const request: DeploymentRequest = { action: 'start', id, template, parameters };
  return obey(call, session, request, {
    action: 'deployment.start',
    object: session,
    after: { id, template, parameters },
  });
}

async function deleteDeployment(call: AdminCall<unknown, z.infer<typeof deleteSchema>>): Promise<Response> {
  const session = sessionOf(call);
  const reply = await signOrderFor(call, session);
  const { deployment } = describedIn(await send(call, session, reply));
  if (deployment === undefined || deployment.state === 'failed')
    throw new ApiError('not_found', `Session ${session} has no deployment.`);
  const { id } = deployment;
  const request: DeploymentRequest = { action: 'stop', id, drain_ms: call.query.drain_ms };
  return obey(call, session, request, { action: 'deployment.stop', object: session, before: deployment });
}

/** Writes the audit log before it sends the order, so that failed orders are in the log too. */
async function obey(
  call: AdminCall<unknown, unknown>,
  session: string,
  request: DeploymentRequest,
  what: Parameters<typeof recordIntent>[1],
): Promise<Response> {
  const reply = await signOrderFor(call, session, request);
  if (reply.kind === 'signed') await recordIntent(call, what);
  const answer = await send(call, session, reply);
  if (answer.kind !== 'accepted') throw answerNotUnderstoodError();
  const deployment: DeploymentState = answer.deployment;
  return call.c.json({ object: 'deployment', session, deployment }, 202, { 'cache-control': 'no-store' });
}

/** @throws ApiError unless the agent accepts the order */
async function send(call: AdminCall<unknown, unknown>, session: string, reply: OrderReply): Promise<AcceptedAnswer> {
  if (reply.kind !== 'signed') throw unsigned(session, reply);
  return sendOrder(call, session, reply.order, codeOf);
}

function describedIn(answer: AcceptedAnswer): TemplateDescription {
  if (answer.kind === 'described') return answer;
  throw answerNotUnderstoodError();
}

function codeOf(code: RefusalCode): 'unprocessable_content' | 'deployment_refused' {
  return code === 'bad_parameters' || code === 'unknown_template' ? 'unprocessable_content' : 'deployment_refused';
}

function unknown(session: string): ApiError {
  return new ApiError('not_found', `There is no session ${session}.`);
}

function unsigned(session: string, reply: UnsignedReply): ApiError {
  switch (reply.kind) {
    case 'unknown':
      return unknown(session);
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
