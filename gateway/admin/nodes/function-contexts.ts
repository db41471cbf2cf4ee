/** The functions that a node has loaded. */
import * as z from 'zod';
import { FUNCTIONS_MODEL } from '../../../shared/batch/function-context.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { SESSION_PARAM, sessionOf } from '../session-param.ts';

const contexts = z.array(z.string());

export const functionContextRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/nodes/:session/contexts',
    params: SESSION_PARAM,
    summary:
      'List the contexts of functions on a node: loaded ones, those being loaded, those with stored code, and those that failed there a moment ago. Null: the node runs no functions, or has not asked for lines for two minutes.',
    answer: z.object({
      object: z.literal('node.contexts'),
      session: z.string(),
      contexts: z.object({ ready: contexts, loading: contexts, stored: contexts, broken: contexts }).nullable(),
    }),
    run: readContexts,
  }),
];

async function readContexts(call: AdminCall): Promise<object> {
  const session = sessionOf(call);
  try {
    const held = await call.env.BATCH_QUEUE.getByName(FUNCTIONS_MODEL).contextsOf(session);
    if (held === null) return { object: 'node.contexts', session, contexts: null };
    const { ready, loading, stored, broken } = held;
    return { object: 'node.contexts', session, contexts: { ready, loading, stored, broken } };
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The queue of functions cannot be reached. Try again shortly.', {
      cause,
    });
  }
}
