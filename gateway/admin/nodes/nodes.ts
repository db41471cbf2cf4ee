/** Routes about nodes: their list, one node, the last log of an ended node, and ending a session. */
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { LOCAL_ISSUER } from '../../../shared/routing/trusted-providers.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { recordIntent } from '../apply-change.ts';
import { listSchema } from '../field-schemas.ts';
import { askRegistry, SESSION_PARAM, sessionOf } from '../session-param.ts';
import { listNodes, nodeSchema, oneNodeSchema, querySchema, readNode } from './node-views.ts';

export const nodeRoutes: readonly AdminRoute[] = [
  route({
    role: 'provider',
    method: 'get',
    path: '/nodes',
    summary:
      'List sessions with their load, circuit breaker and running requests. Operators see all sessions, providers only their own.',
    query: querySchema,
    answer: listSchema(nodeSchema),
    run: listNodes,
  }),
  route({
    role: 'provider',
    method: 'get',
    path: '/nodes/:session',
    params: SESSION_PARAM,
    summary: 'Return one session, with its tunnel and its last errors.',
    answer: oneNodeSchema,
    run: readNode,
  }),
  route({
    role: 'provider',
    method: 'get',
    path: '/nodes/:session/logs',
    params: SESSION_PARAM,
    summary: 'Return the last output of the engine and agent of an ended node: text, at most 256 KiB, kept for 7 days.',
    run: readLogs,
  }),
  route({
    role: 'operator',
    method: 'delete',
    path: '/nodes/:session',
    params: SESSION_PARAM,
    summary:
      "End a session of this gateway's issuer. Its agent joins again with a new session if its join token is valid.",
    answer: z.object({ object: z.literal('node'), session: z.string(), deleted: z.boolean() }),
    run: endSession,
  }),
];

async function readLogs(call: AdminCall): Promise<Response> {
  const session = sessionOf(call);
  const tail = await askRegistry(call.env, (registry) => registry.log(session));
  const { role, provider } = call.account;
  // For a log of another provider, the response is the same as for a missing log, because the existence of a log is
  // confidential too.
  if (tail === null || (role !== 'operator' && tail.provider !== provider))
    throw new ApiError('not_found', `This gateway has no log of session ${session}.`);
  return call.c.body(tail.text, 200, {
    'cache-control': 'no-store',
    'last-modified': new Date(tail.at).toUTCString(),
    // The text comes from an engine, so a browser must not render it as a page.
    'content-type': 'text/plain; charset=utf-8',
    'x-content-type-options': 'nosniff',
    'x-otela-provider': tail.provider,
  });
}

async function endSession(call: AdminCall): Promise<object> {
  const session = sessionOf(call);
  const { nodes } = await askRegistry(call.env, (registry) => registry.look({ session, limit: 1 }));
  const { issuer, provider } = nodes[0]?.entry ?? {};
  if (issuer === LOCAL_ISSUER) await recordIntent(call, { action: 'node.end', object: session, before: { provider } });
  const evicted = await askRegistry(call.env, (registry) => registry.evict(session));
  if (!evicted) throw new ApiError('not_found', `Session ${session} was not admitted by this gateway's issuer.`);
  return { object: 'node', session, deleted: true };
}
