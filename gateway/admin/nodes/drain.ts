/** Draining a node from afar: as `otela-agent drain` on its machine. */
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/errors.ts';
import { RATE_FRAME } from '../../../shared/wire/limits.ts';
import { writeDown } from '../change.ts';
import { type AdminRoute, type Call, route } from '../route.ts';
import { SESSION_PARAM, sessionOf } from '../session.ts';
import { notUnderstood, orderFrom, sendOrder, type Unsigned } from './orders.ts';

/** The first that obey an order to drain also read this frame, and say so. */
export const DRAINS_FROM = RATE_FRAME;

export const drainRoutes: readonly AdminRoute[] = [
  route({
    role: 'provider',
    method: 'post',
    path: '/nodes/:session/drain',
    params: SESSION_PARAM,
    status: 202,
    summary:
      'Have a node take nothing new, finish what runs, and leave; its agent and its engine end. 202: its agent agreed. Providers drain their own.',
    answer: z.object({
      object: z.literal('node'),
      session: z.string(),
      draining: z.literal(true),
      /** Requests that it waits for. */
      running: z.number().int().min(0),
    }),
    run: drainNode,
  }),
];

async function drainNode(call: Call): Promise<Response> {
  const session = sessionOf(call);
  const { account, env } = call;
  const reply = await orderFrom(call, session, { action: 'drain' });
  // Others' nodes are not there, rather than forbidden.
  if (account.role !== 'operator' && reply.kind !== 'powerless' && account.provider !== reply.provider)
    throw orderRefusal(session, { kind: 'unknown' });
  if (reply.kind !== 'signed') throw orderRefusal(session, reply);
  if (!(await takesOrders(env, session))) throw tooOld(session);
  await writeDown(call, { action: 'node.drain', object: session, before: { provider: reply.provider } });
  const answer = await sendOrder(call, session, reply.order, () => 'order_refused');
  if (answer.kind !== 'draining') throw notUnderstood();
  const { running } = answer;
  return call.c.json({ object: 'node', session, draining: true, running }, 202, { 'cache-control': 'no-store' });
}

export function tooOld(session: string): ApiError {
  return new ApiError(
    'order_refused',
    `The agent of session ${session} is too old to be drained from here: \`otela-agent drain\` or SIGTERM on its machine does it.`,
  );
}

/** An older agent closes its tunnel when it reads an order. @throws ApiError where the tunnel is not open here */
export async function takesOrders(env: Call['env'], session: string): Promise<boolean> {
  const status = await env.TUNNEL.getByName(session).status();
  if (status === null) throw orderRefusal(session, { kind: 'unreachable' });
  return status.reads >= DRAINS_FROM;
}

/** Why no order reaches a session. */
export function orderRefusal(session: string, reply: Unsigned): ApiError {
  switch (reply.kind) {
    case 'unknown':
      return new ApiError('not_found', `There is no session ${session}.`);
    case 'over':
      return new ApiError('not_found', `Session ${session} has left already.`);
    case 'foreign':
      return new ApiError(
        'order_refused',
        `Session ${session} was admitted by another institution, which alone gives it orders.`,
      );
    case 'unreachable':
      return new ApiError(
        'order_refused',
        `The tunnel of session ${session} is not open at this gateway now: ask the gateway where it is.`,
      );
    case 'deaf':
      return new ApiError('order_refused', `The agent of session ${session} takes no orders.`);
    case 'powerless':
      return new ApiError('internal_error', reply.reason);
  }
}
