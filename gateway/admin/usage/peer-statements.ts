/** Signed statements between this institution and a peer institution. */
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { LOCAL_ISSUER } from '../../../shared/routing/trusted-providers.ts';
import type { SignedHead, StatementHead } from '../../../shared/usage/signed-statement.ts';
import type { Env } from '../../env.ts';
import { environmentNumber } from '../../environment-checks.ts';
import { REGISTRY_OBJECT_NAME } from '../../platform/registry-object-name.ts';
import { issuersView } from '../../registry/views/issuers-view.ts';
import { RETENTION_DEFAULT_DAYS } from '../../usage/hour/usage-hour-object.ts';
import { isFinal, monthBounds, peerStatementStream } from '../../usage/peer-statement.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';

const DAY_MS = 86_400_000;

const statementQuery = z.strictObject({
  /** The month, UTC. Default: the current one. */
  month: z
    .string()
    .regex(/^\d{4}-(?:0[1-9]|1[0-2])$/, 'must be a month such as 2026-11')
    .optional(),
  /** `served`: what our nodes served for the peer institution. `used`: what our users used at its nodes. */
  side: z.enum(['served', 'used']).default('served'),
});

export const peerStatementRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/peers/:name/statement',
    summary:
      'Return a signed statement of a month: one line per request, and a last line with the signed Merkle root over them.',
    query: statementQuery,
    run: readStatement,
  }),
];

async function readStatement(call: AdminCall<unknown, z.infer<typeof statementQuery>>): Promise<Response> {
  const { env, query, now } = call;
  const name = call.param('name');
  const issuers = [...(await issuersView(env, call.c.executionCtx)).issuers.values()];
  const own = issuers.find((issuer) => issuer.name === LOCAL_ISSUER);
  const peer = name === LOCAL_ISSUER ? undefined : issuers.find((issuer) => issuer.name === name);
  if (own === undefined || peer === undefined)
    throw new ApiError('not_found', `There is no peer institution "${name}".`);
  const { month = new Date(now).toISOString().slice(0, 7), side } = query;
  const { from, to } = monthBounds(month);
  requireRecords(env, from, now);
  const facts = { month, side, issuer: own.id, peer: peer.id, made_at: Math.floor(now / 1_000) };
  const body = peerStatementStream(env, {
    peer: name,
    facts: { ...facts, final: isFinal(to, now) },
    from,
    to: Math.min(to, now + DAY_MS),
    sign: (statement) => sign(env, statement),
  });
  const headers = {
    'content-type': 'application/x-ndjson',
    'content-disposition': `attachment; filename="${name}-${side}-${month}.ndjson"`,
    'cache-control': 'no-store',
  };
  return new Response(body, { headers });
}

/** @throws ApiError 422 if the month has not begun, or its first records may be deleted already */
function requireRecords(env: Env, from: number, now: number): void {
  const days = environmentNumber(env, 'USAGE_KEPT_DAYS') ?? RETENTION_DEFAULT_DAYS;
  if (from > now) throw new ApiError('unprocessable_content', 'month: has not begun.', { param: 'month' });
  if (from < now - days * DAY_MS)
    throw new ApiError('unprocessable_content', `month: began more than ${days} days ago; its records are deleted.`, {
      param: 'month',
    });
}

/** Rejects if this gateway's key cannot sign. The reader then gets a file without its last line, which is refused. */
async function sign({ REGISTRY }: Env, statement: StatementHead): Promise<SignedHead> {
  const signed = (await REGISTRY.getByName(REGISTRY_OBJECT_NAME).signStatement(statement)) as
    | SignedHead
    | { reason: string };
  if ('reason' in signed) throw new Error(`cannot sign a statement: ${signed.reason}`);
  return signed;
}
