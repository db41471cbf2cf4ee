/** Restarts an agent with the version that is installed on its machine. A rollout restarts one node after another. */
import * as z from 'zod';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { recordIntent } from '../apply-change.ts';
import { SESSION_PARAM, sessionOf } from '../session-param.ts';
import { acceptsOrders, agentTooOldError, orderRefusal } from './drain-node.ts';
import { answerNotUnderstoodError, sendOrder, signOrderFor } from './send-order.ts';

const bodySchema = z.strictObject({
  /** The version that must be installed on the node's machine. */
  version: z.string().min(1).max(64),
});

export const restartRoutes: readonly AdminRoute[] = [
  route({
    role: 'provider',
    method: 'post',
    path: '/nodes/:session/restart',
    params: SESSION_PARAM,
    body: bodySchema,
    status: 202,
    summary:
      'Drain a node and restart its agent with the installed version. 202: the agent accepted. 409: another version is installed, or the installed program does not start. Providers may restart only their own nodes.',
    answer: z.object({
      object: z.literal('node'),
      session: z.string(),
      restarting: z.literal(true),
      /** The version that runs until the restart. */
      from: z.string(),
      version: z.string(),
      /** Running requests that the node finishes before it restarts. */
      running: z.number().int().min(0),
    }),
    run: restartNode,
  }),
];

async function restartNode(call: AdminCall<z.infer<typeof bodySchema>>): Promise<Response> {
  const session = sessionOf(call);
  const { account, env, body } = call;
  const { version } = body;
  const reply = await signOrderFor(call, session, { action: 'restart', version });
  // For a node of another provider, the response is the same as for a node that does not exist.
  if (account.role !== 'operator' && reply.kind !== 'powerless' && account.provider !== reply.provider)
    throw orderRefusal(session, { kind: 'unknown' });
  if (reply.kind !== 'signed') throw orderRefusal(session, reply);
  if (!(await acceptsOrders(env, session))) throw agentTooOldError(session);
  await recordIntent(call, {
    action: 'node.restart',
    object: session,
    before: { provider: reply.provider },
    after: { version },
  });
  const answer = await sendOrder(call, session, reply.order, () => 'order_refused');
  if (answer.kind !== 'restarting') throw answerNotUnderstoodError();
  const { running, from } = answer;
  return call.c.json({ object: 'node', session, restarting: true, from, version, running }, 202, {
    'cache-control': 'no-store',
  });
}
