/** Peer institutions, whose nodes this gateway accepts. */
import { asc, eq } from 'drizzle-orm';
import * as z from 'zod';
import { idSchema } from '../../shared/lattice/node-record.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { LOCAL_ISSUER } from '../../shared/routing/trusted-providers.ts';
import { peers } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import { httpUrlSchema } from '../http/common-schemas.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import { listedIssuer } from '../registry/listed-issuers.ts';
import { PEERS_MAX } from '../registry/peer-institutions.ts';
import { issuersView } from '../registry/views/issuers-view.ts';
import { type AdminCall, type AdminRoute, route } from './admin-route.ts';
import { applyChange, notifyIsolates } from './apply-change.ts';
import { listSchema } from './field-schemas.ts';
import { rfc3339 } from './pagination.ts';

type Peer = typeof peers.$inferSelect;

/** A public key in base64url: 32 bytes are 43 characters, and the last character has only four bits. */
const ROOT = /^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/;

const createSchema = z.strictObject({
  /** Name of the institution here, and suffix of its providers' names: `lab@NAME`. */
  name: idSchema
    .refine((name) => name !== LOCAL_ISSUER, `"${LOCAL_ISSUER}" is the name of this gateway's own issuer`)
    .meta({ not: { const: LOCAL_ISSUER } }),
  /** Public root key of the institution's issuer, base64url. */
  root: z.string().regex(ROOT, 'must be a public key, 32 bytes in base64url'),
  url: httpUrlSchema.nullable().default(null),
});

const peerSchema = z.object({
  object: z.literal('peer'),
  name: z.string(),
  /** Id of the issuer, derived from the root key. */
  issuer: z.string().nullable(),
  root: z.string(),
  url: z.string().nullable(),
  created_at: z.iso.datetime(),
});

const OPERATOR = { role: 'operator' } as const;

export const peerRoutes: readonly AdminRoute[] = [
  route({
    ...OPERATOR,
    method: 'get',
    path: '/peers',
    summary: 'List peer institutions. This gateway accepts their tickets.',
    answer: listSchema(peerSchema),
    run: async ({ env }) => {
      const rows = await queryOrUnavailable(
        database(env).select().from(peers).orderBy(asc(peers.name)).limit(PEERS_MAX),
      );
      return { object: 'list', data: rows.map(view), has_more: false };
    },
  }),
  route({
    ...OPERATOR,
    method: 'post',
    path: '/peers',
    repeatable: true,
    summary: 'Add the issuer of a peer institution. Its nodes may then serve here, as provider@name.',
    body: createSchema,
    answer: peerSchema,
    run: listPeer,
  }),
  route({
    ...OPERATOR,
    method: 'delete',
    path: '/peers/:name',
    summary: 'Remove a peer institution. Only its nodes are disconnected from this gateway.',
    answer: z.object({ object: z.literal('peer'), name: z.string(), deleted: z.boolean() }),
    run: removePeer,
  }),
];

async function listPeer(call: AdminCall<z.infer<typeof createSchema>>): Promise<Response> {
  const { name, root, url } = call.body;
  const issuer = listedIssuer(name, root, url ?? undefined, workerdCrypto);
  if (issuer === undefined)
    throw new ApiError('unprocessable_content', 'root: must be a public key, 32 bytes in base64url.', {
      param: 'root',
    });
  const { issuers } = await issuersView(call.env, call.c.executionCtx);
  if (issuers.get(issuer.id)?.name === LOCAL_ISSUER)
    throw new ApiError(
      'unprocessable_content',
      'root: This is the key of this gateway’s own issuer, which is always listed.',
      {
        param: 'root',
      },
    );
  const db = database(call.env);
  const rows = await queryOrUnavailable(db.select().from(peers));
  const known = rows.find((row) => row.name === name);
  if (known !== undefined && known.root !== root) {
    const message = `name: The peer institution "${name}" has a different key. Remove it first, which also disconnects its nodes.`;
    throw new ApiError('unprocessable_content', message, { param: 'name' });
  }
  const other = rows.find((row) => row.root === root && row.name !== name);
  if (other !== undefined)
    throw new ApiError('unprocessable_content', `root: This key is already listed, as "${other.name}".`, {
      param: 'root',
    });
  if (known === undefined && rows.length >= PEERS_MAX)
    throw new ApiError(
      'unprocessable_content',
      `This gateway already lists ${PEERS_MAX} peer institutions, the maximum.`,
    );
  const row = { name, root, url, createdAt: known?.createdAt ?? call.now };
  const write = db.insert(peers).values(row).onConflictDoUpdate({ target: peers.name, set: { url } });
  const what = { action: known === undefined ? 'peer.create' : 'peer.update', object: name, after: view(row) };
  await applyChange(call, [write], known === undefined ? what : { ...what, before: view(known) });
  return call.c.json(view(row), known === undefined ? 201 : 200, { 'cache-control': 'no-store' });
}

async function removePeer(call: AdminCall): Promise<object> {
  const name = call.param('name');
  const [row] = await queryOrUnavailable(database(call.env).select().from(peers).where(eq(peers.name, name)));
  // An earlier request may have deleted the row and failed to notify the registry, so a repeated request notifies it.
  if (row === undefined) await notifyIsolates(call.env);
  else {
    const write = database(call.env).delete(peers).where(eq(peers.name, name));
    await applyChange(call, [write], { action: 'peer.delete', object: name, before: view(row) });
  }
  return { object: 'peer', name, deleted: row !== undefined };
}

function view(row: Peer): z.infer<typeof peerSchema> {
  const { name, root, url, createdAt } = row;
  const issuer = listedIssuer(name, root, undefined, workerdCrypto)?.id ?? null;
  return { object: 'peer', name, issuer, root, url, created_at: rfc3339(createdAt) };
}
