/** Sends orders to one node: the registry object signs an order, the tunnel object sends it, and the agent answers. */

import type { RefusalCode } from '../../../shared/deployment/deployment-error.ts';
import type { DeploymentRequest } from '../../../shared/deployment/deployment-order.ts';
import { type DeploymentAnswer, deploymentAnswerSchema } from '../../../shared/deployment/order-reply.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import type { OrderReply } from '../../registry/sign-order.ts';
import type { AdminCall } from '../admin-route.ts';
import { askRegistry } from '../session-param.ts';

export type AcceptedAnswer = Exclude<DeploymentAnswer, { kind: 'refused' }>;
export type UnsignedReply = Exclude<OrderReply, { kind: 'signed' }>;

/**
 * Returns the signed order, or why it cannot be signed. The result is not validated, because the registry object is
 * part of this program. @throws ApiError 503
 */
export function signOrderFor(
  { env }: Pick<AdminCall, 'env'>,
  session: string,
  request?: DeploymentRequest,
): Promise<OrderReply> {
  return askRegistry(env, async (registry) => (await registry.order(session, request)) as OrderReply);
}

/** @param codeOf returns the error code for an agent's refusal @throws ApiError unless the agent accepts the order */
export async function sendOrder(
  { env }: Pick<AdminCall, 'env'>,
  session: string,
  order: Uint8Array,
  codeOf: (code: RefusalCode) => 'unprocessable_content' | 'deployment_refused' | 'order_refused',
): Promise<AcceptedAnswer> {
  const json = await sent(env, session, order);
  if (json === null) {
    const message = `Session ${session} did not answer, so the order may or may not have arrived. Before you repeat it, check its effect in the registry.`;
    throw new ApiError('upstream_timeout', message);
  }
  const answer = read(json);
  if (answer.kind !== 'refused') return answer;
  throw new ApiError(codeOf(answer.code), `The agent refused the order (${answer.code}): ${answer.message}.`);
}

async function sent(env: AdminCall['env'], session: string, order: Uint8Array): Promise<string | null> {
  try {
    return await env.TUNNEL.getByName(session).deploy(order);
  } catch {
    return null; // the object is restarting, which is treated like a closed tunnel
  }
}

/** Parses and validates an agent's answer. @throws ApiError 502 */
function read(json: string): DeploymentAnswer {
  try {
    return deploymentAnswerSchema.parse(JSON.parse(json));
  } catch (cause) {
    throw answerNotUnderstoodError(cause);
  }
}

export function answerNotUnderstoodError(cause?: unknown): ApiError {
  return new ApiError('upstream_error', 'This gateway cannot parse the agent’s response.', { cause });
}
