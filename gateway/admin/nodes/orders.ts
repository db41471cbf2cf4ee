/** Orders to one node: signed by the registry's object, sent down its tunnel, and what its agent answers. */
import { answerSchema, type DeploymentAnswer } from '../../../shared/deployment/answer.ts';
import type { RefusalCode } from '../../../shared/deployment/error.ts';
import type { Wish } from '../../../shared/deployment/order.ts';
import { ApiError } from '../../../shared/openai/errors.ts';
import type { OrderReply } from '../../registry/orders.ts';
import type { Call } from '../route.ts';
import { asking } from '../session.ts';

export type Agreed = Exclude<DeploymentAnswer, { kind: 'refused' }>;
export type Unsigned = Exclude<OrderReply, { kind: 'signed' }>;

/** Both ends are this program: the answer of a call between objects is what was given. @throws ApiError 503 */
export function orderFrom({ env }: Pick<Call, 'env'>, session: string, wish?: Wish): Promise<OrderReply> {
  return asking(env, async (registry) => (await registry.order(session, wish)) as OrderReply);
}

/** @throws ApiError for everything but an answer that agrees; `codeOf`: what a refusal is to the caller */
export async function sendOrder(
  { env }: Pick<Call, 'env'>,
  session: string,
  order: Uint8Array,
  codeOf: (code: RefusalCode) => 'unprocessable_content' | 'deployment_refused' | 'order_refused',
): Promise<Agreed> {
  const json = await sent(env, session, order);
  if (json === null) {
    const message = `Session ${session} did not answer. Whether the order arrived is not known: look for what it was to do in the registry before it is repeated.`;
    throw new ApiError('upstream_timeout', message);
  }
  const answer = read(json);
  if (answer.kind !== 'refused') return answer;
  throw new ApiError(codeOf(answer.code), `The agent refuses (${answer.code}): ${answer.message}.`);
}

async function sent(env: Call['env'], session: string, order: Uint8Array): Promise<string | null> {
  try {
    return await env.TUNNEL.getByName(session).deploy(order);
  } catch {
    return null; // the object moved: as if the tunnel were gone
  }
}

/** @throws ApiError 502: an agent's answer is checked as any input is */
function read(json: string): DeploymentAnswer {
  try {
    return answerSchema.parse(JSON.parse(json));
  } catch (cause) {
    throw notUnderstood(cause);
  }
}

export function notUnderstood(cause?: unknown): ApiError {
  return new ApiError('upstream_error', 'The agent answered what this gateway does not understand.', { cause });
}
