/** The output of a node's engine and the use of its GPUs, requested from its agent for each call. */
import * as z from 'zod';
import { inspectedSchema } from '../../../shared/deployment/order-reply.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { SESSION_PARAM, sessionOf } from '../session-param.ts';
import { acceptsOrders, orderRefusal } from './drain-node.ts';
import { answerNotUnderstoodError, sendOrder, signOrderFor } from './send-order.ts';

const telemetrySchema = inspectedSchema.omit({ kind: true }).extend({
  object: z.literal('node_telemetry'),
  session: z.string(),
});

export const telemetryRoutes: readonly AdminRoute[] = [
  route({
    role: 'provider',
    method: 'get',
    path: '/nodes/:session/telemetry',
    params: SESSION_PARAM,
    summary:
      'Ask the agent for the last output of the engine (32 KiB), its own last output (16 KiB), and the use of each GPU. Providers see only their own nodes.',
    answer: telemetrySchema,
    run: readTelemetry,
  }),
];

async function readTelemetry(call: AdminCall): Promise<object> {
  const session = sessionOf(call);
  const { account } = call;
  const reply = await signOrderFor(call, session, { action: 'inspect' });
  // For a node of another provider, the response is the same as for a node that does not exist.
  if (account.role !== 'operator' && reply.kind !== 'powerless' && account.provider !== reply.provider)
    throw orderRefusal(session, { kind: 'unknown' });
  if (reply.kind !== 'signed') throw orderRefusal(session, reply);
  if (!(await acceptsOrders(call.env, session)))
    throw new ApiError('order_refused', `The agent of session ${session} is too old to send the output of its engine.`);
  const answer = await sendOrder(call, session, reply.order, () => 'order_refused');
  if (answer.kind !== 'inspected') throw answerNotUnderstoodError();
  const { kind: _kind, ...output } = answer;
  return { object: 'node_telemetry', session, ...output };
}
