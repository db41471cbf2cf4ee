/** Drains a node by an order that its gateway sends, like `otela-agent drain` on its machine. */
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { RATE_FRAME } from '../../../shared/wire/protocol-constants.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { recordIntent } from '../apply-change.ts';
import { SESSION_PARAM, sessionOf } from '../session-param.ts';
import { answerNotUnderstoodError, sendOrder, signOrderFor, type UnsignedReply } from './send-order.ts';

/**
 * An agent obeys drain orders if the highest frame type that it reads is at least this. The first version that obeys
 * drain orders is also the first that reads RATE frames.
 */
export const DRAIN_FRAMES_MIN = RATE_FRAME;

export const drainRoutes: readonly AdminRoute[] = [
  route({
    role: 'provider',
    method: 'post',
    path: '/nodes/:session/drain',
    params: SESSION_PARAM,
    status: 202,
    summary:
      'Drain a node: it takes no new requests, finishes running requests, and ends its agent and engine. 202: the agent accepted. Providers may drain only their own nodes.',
    answer: z.object({
      object: z.literal('node'),
      session: z.string(),
      draining: z.literal(true),
      /** Running requests that the node finishes before it ends. */
      running: z.number().int().min(0),
    }),
    run: drainNode,
  }),
];

async function drainNode(call: AdminCall): Promise<Response> {
  const session = sessionOf(call);
  const { account, env } = call;
  const reply = await signOrderFor(call, session, { action: 'drain' });
  // For a node of another provider, the response is the same as for a node that does not exist.
  if (account.role !== 'operator' && reply.kind !== 'powerless' && account.provider !== reply.provider)
    throw orderRefusal(session, { kind: 'unknown' });
  if (reply.kind !== 'signed') throw orderRefusal(session, reply);
  if (!(await acceptsOrders(env, session))) throw agentTooOldError(session);
  await recordIntent(call, { action: 'node.drain', object: session, before: { provider: reply.provider } });
  const answer = await sendOrder(call, session, reply.order, () => 'order_refused');
  if (answer.kind !== 'draining') throw answerNotUnderstoodError();
  const { running } = answer;
  return call.c.json({ object: 'node', session, draining: true, running }, 202, { 'cache-control': 'no-store' });
}

export function agentTooOldError(session: string): ApiError {
  return new ApiError(
    'order_refused',
    `The agent of session ${session} is too old to obey orders: use \`otela-agent drain\` or SIGTERM on its machine.`,
  );
}

/**
 * True if the session's agent obeys orders. An older agent would close its tunnel if it received an order.
 * @throws ApiError if the node has no tunnel to this gateway
 */
export async function acceptsOrders(env: AdminCall['env'], session: string): Promise<boolean> {
  const status = await env.TUNNEL.getByName(session).status();
  if (status === null) throw orderRefusal(session, { kind: 'unreachable' });
  return status.reads >= DRAIN_FRAMES_MIN;
}

/** Returns the error for an order that cannot be sent to a session. */
export function orderRefusal(session: string, reply: UnsignedReply): ApiError {
  switch (reply.kind) {
    case 'unknown':
      return new ApiError('not_found', `There is no session ${session}.`);
    case 'over':
      return new ApiError('not_found', `Session ${session} has already left.`);
    case 'foreign':
      return new ApiError(
        'order_refused',
        `Session ${session} was admitted by another institution. Only that institution can send it orders.`,
      );
    case 'unreachable':
      return new ApiError(
        'order_refused',
        `The tunnel of session ${session} is not open at this gateway now: send the request to the gateway that has the tunnel.`,
      );
    case 'deaf':
      return new ApiError('order_refused', `The agent of session ${session} does not accept orders.`);
    case 'powerless':
      return new ApiError('internal_error', reply.reason);
  }
}
