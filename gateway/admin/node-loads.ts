/** The load that a node's engine reported during the last hour, for the plots on the node's page. */
import * as z from 'zod';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { NodeLoad } from '../../shared/routing/node-load.ts';
import { type AdminCall, type AdminRoute, route } from './admin-route.ts';
import { listSchema } from './field-schemas.ts';
import { rfc3339 } from './pagination.ts';
import { askRegistry, SESSION_PARAM, sessionOf } from './session-param.ts';

const count = z.number().int().min(0);

const loadSchema = z.object({
  object: z.literal('node_load'),
  at: z.iso.datetime(),
  running: count,
  waiting: count,
  kv_use: z.number().nullable(),
  tokens_per_second: z.number().nullable(),
});

export const nodeLoadRoutes: readonly AdminRoute[] = [
  route({
    role: 'provider',
    method: 'get',
    path: '/nodes/:session/loads',
    params: SESSION_PARAM,
    summary:
      "List the load of a node's engine in the last hour, with one entry per 10 s and none while it is idle. The list is in memory, so it is shorter after a restart of the gateway. Providers see only their own nodes.",
    answer: listSchema(loadSchema),
    run: readLoads,
  }),
];

async function readLoads(call: AdminCall): Promise<object> {
  const { env, account } = call;
  const session = sessionOf(call);
  const { nodes } = await askRegistry(env, (registry) => registry.look({ session, limit: 1 }));
  const entry = nodes[0]?.entry;
  // For a node of another provider, the response is the same as for a node that does not exist.
  if (entry === undefined || (account.role !== 'operator' && entry.provider !== account.provider))
    throw new ApiError('not_found', `This gateway does not know session ${session}.`);
  // Only the tunnel object of a connected agent is called, because a call with any other name would create an object.
  const loads = entry.connected ? await loadsOf(env, session) : [];
  return { object: 'list', data: loads.map(view), has_more: false };
}

/** Reads the loads from the tunnel object. Empty if the object is restarting at this moment. */
async function loadsOf(env: AdminCall['env'], session: string): Promise<NodeLoad[]> {
  try {
    return await env.TUNNEL.getByName(session).loads();
  } catch {
    return [];
  }
}

function view({ at, running, waiting, kvUse, tokensPerSecond }: NodeLoad): z.infer<typeof loadSchema> {
  return {
    object: 'node_load',
    at: rfc3339(at),
    running,
    waiting,
    kv_use: kvUse ?? null,
    tokens_per_second: tokensPerSecond ?? null,
  };
}
