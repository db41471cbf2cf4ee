/**
 * SCIM 2.0 (RFC 7644) for users: the identity provider creates, changes and disables users, so that a person that
 * leaves has no valid key within seconds.
 */
import { and, asc, count, eq, or, type SQL, sql } from 'drizzle-orm';
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { isRoleAtLeast, requireScope } from '../../accounts/account.ts';
import { users } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { readGatewaySettings } from '../../accounts/gateway-settings.ts';
import { displayName } from '../../accounts/login/oidc-config.ts';
import { sha256Hex } from '../../accounts/secrets.ts';
import type { Env } from '../../env.ts';
import { basePathOf } from '../../http/base-path.ts';
import { readJsonBody } from '../../http/parse-body.ts';
import { adminCaller } from '../admin-caller.ts';
import type { AdminCall } from '../admin-route.ts';
import { createUser, type createUserSchema, patchUser, type patchUserSchema, viewUser } from '../people/users.ts';
import { errorDocument, ScimError, toScimError } from './scim-error.ts';
import {
  changeOf,
  changeOfOperations,
  parseFilter,
  patchSchema,
  resourceOf,
  resourceSchema,
  type ScimChange,
  USER_SCHEMA,
} from './scim-user.ts';

const BODY_MAX_BYTES = 64 * 1024;
const PAGE_MAX = 200;
const CONTENT_TYPE = 'application/scim+json; charset=utf-8';

type ScimContext = Context<{ Bindings: Env }>;

/** Below `/scim/v2`, and `/scim/ISSUER/v2` if several identity providers are configured. */
export const scimRoutes = new Hono<{ Bindings: Env }>();

/** A request that is authorized, and the identity provider of the users that it manages. */
interface ScimRequest {
  call: AdminCall;
  issuer: string;
  base: string;
}

scimRoutes.get('/ServiceProviderConfig', async (c) => {
  await authorize(c);
  return answer(c, {
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig'],
    patch: { supported: true },
    bulk: { supported: false, maxOperations: 0, maxPayloadSize: 0 },
    filter: { supported: true, maxResults: PAGE_MAX },
    changePassword: { supported: false },
    sort: { supported: false },
    etag: { supported: false },
    authenticationSchemes: [
      { type: 'oauthbearertoken', name: 'Key', description: "An operator's key with the scope scim.", primary: true },
    ],
  });
});

scimRoutes.get('/ResourceTypes', async (c) => {
  await authorize(c);
  return answer(
    c,
    listDocument(
      [
        {
          schemas: ['urn:ietf:params:scim:schemas:core:2.0:ResourceType'],
          id: 'User',
          name: 'User',
          endpoint: '/Users',
          schema: USER_SCHEMA,
        },
      ],
      1,
      1,
    ),
  );
});

scimRoutes.get('/Users', async (c) => {
  const { issuer, base } = await authorize(c);
  const { filter, startIndex, count: size } = readPage(c);
  const where = and(eq(users.issuer, issuer), filter === undefined ? undefined : matching(filter));
  const db = database(c.env);
  const [all] = await queryOrUnavailable(db.select({ n: count() }).from(users).where(where));
  const rows = await queryOrUnavailable(
    db
      .select()
      .from(users)
      .where(where)
      .orderBy(asc(users.createdAt), asc(users.id))
      .limit(size)
      .offset(startIndex - 1),
  );
  const found = rows.map((row) => resourceOf(viewUser(row), base));
  return answer(c, listDocument(found, all?.n ?? 0, startIndex));
});

scimRoutes.post('/Users', async (c) => {
  const { call, issuer, base } = await authorize(c);
  const resource = await body(c, resourceSchema);
  const { name, email = null, disabled, externalId = resource.userName } = changeOf(resource);
  if ((await findUser(c, issuer, eq(users.subject, externalId))) !== undefined)
    throw new ScimError(409, 'A user with this externalId exists.', 'uniqueness');
  const created: z.infer<typeof createUserSchema> = {
    name: displayName(name ?? resource.userName),
    email,
    role: 'consumer',
    issuer,
    subject: externalId,
  };
  const made = await createUser({ ...call, body: created });
  const { id } = z.object({ id: z.string() }).parse(await made.json());
  if (disabled === true) await patchUser(callFor(call, id, { disabled }));
  const row = await requireUser(c, issuer, id);
  return answer(c, resourceOf(viewUser(row), base), 201);
});

scimRoutes.get('/Users/:id', async (c) => {
  const { issuer, base } = await authorize(c);
  return answer(c, resourceOf(viewUser(await requireUser(c, issuer, c.req.param('id'))), base));
});

scimRoutes.put('/Users/:id', async (c) => {
  const resource = await body(c, resourceSchema);
  return change(c, { disabled: false, ...changeOf(resource) });
});

scimRoutes.patch('/Users/:id', async (c) => change(c, changeOfOperations(await body(c, patchSchema))));

/** Disables the user: usage records refer to it. `otela-gateway users delete` erases it. */
scimRoutes.delete('/Users/:id', async (c) => {
  await change(c, { disabled: true });
  return c.body(null, 204);
});

scimRoutes.all('*', async (c) => {
  await authorize(c);
  throw new ScimError(404, 'There is nothing at this path. Only Users are supported.');
});

scimRoutes.onError((error, c) => {
  const known = toScimError(error);
  if (!(known instanceof ScimError)) throw error;
  return c.body(JSON.stringify(errorDocument(known)), known.status as 400, { 'content-type': CONTENT_TYPE });
});

/** @throws ApiError, ScimError */
async function authorize(c: ScimContext): Promise<ScimRequest> {
  const now = Date.now();
  const caller = await adminCaller(c.env, c.req.raw, now);
  if (!isRoleAtLeast(caller.account.role, 'operator')) throw new ScimError(403, 'This needs the key of an operator.');
  requireScope(caller.account, 'scim', 'admin');
  const { oidc } = await readGatewaySettings(c.env);
  const named = c.req.param('issuer');
  const issuers = oidc.filter(({ issuer }) => named === undefined || sha256Hex(issuer).slice(0, 16) === named);
  const [issuer] = issuers;
  if (issuer === undefined || issuers.length > 1)
    throw new ScimError(404, 'Name one identity provider of the setting oidc: /scim/ISSUER/v2, see docs/login.md.');
  const base = `${new URL(c.req.url).origin}${basePathOf(c.req.raw)}/scim${named === undefined ? '' : `/${named}`}/v2`;
  const call: AdminCall = {
    ...caller,
    c,
    env: c.env,
    now,
    actor: caller.account.keyId,
    body: undefined,
    query: undefined,
    param: (name) => c.req.param(name) ?? '',
  };
  return { call, issuer: issuer.issuer, base };
}

async function change(c: ScimContext, { externalId, name, ...set }: ScimChange): Promise<Response> {
  const { call, issuer, base } = await authorize(c);
  const row = await requireUser(c, issuer, c.req.param('id') ?? '');
  if (externalId !== undefined && externalId !== row.subject)
    throw new ScimError(400, 'externalId cannot change: create another user.', 'mutability');
  await patchUser(callFor(call, row.id, { ...set, ...(name !== undefined && { name: displayName(name) }) }));
  return answer(c, resourceOf(viewUser(await requireUser(c, issuer, row.id)), base));
}

function callFor(call: AdminCall, id: string, body: z.infer<typeof patchUserSchema>) {
  return { ...call, body, param: () => id };
}

/** Returns only users of this identity provider. @throws ScimError 404 */
async function requireUser(c: ScimContext, issuer: string, id: string) {
  const row = await findUser(c, issuer, eq(users.id, id));
  if (row === undefined) throw new ScimError(404, 'There is no user with this id.');
  return row;
}

async function findUser(c: ScimContext, issuer: string, where: SQL) {
  const query = database(c.env)
    .select()
    .from(users)
    .where(and(eq(users.issuer, issuer), where));
  const [row] = await queryOrUnavailable(query);
  return row;
}

function matching(filter: string): SQL | undefined {
  const { attribute, value } = parseFilter(filter);
  const byEmail = sql`lower(${users.email}) = ${value.toLowerCase()}`;
  switch (attribute) {
    case 'id':
      return eq(users.id, value);
    case 'externalid':
      return eq(users.subject, value);
    case 'email':
      return byEmail;
    case 'username':
      return or(byEmail, eq(users.subject, value));
  }
}

const pageSchema = z.object({
  filter: z.string().max(1_024).optional(),
  // RFC 7644 §3.4.2.4: values below the minimum mean the minimum.
  startIndex: z.coerce.number().int().max(1_000_000).default(1),
  count: z.coerce.number().int().max(1_000_000).default(100),
});

function readPage(c: ScimContext) {
  const read = pageSchema.safeParse(c.req.query());
  if (!read.success) throw new ScimError(400, 'startIndex and count must be whole numbers.', 'invalidValue');
  const { filter, startIndex, count: size } = read.data;
  return { filter, startIndex: Math.max(1, startIndex), count: Math.min(PAGE_MAX, Math.max(0, size)) };
}

async function body<T>(c: ScimContext, schema: z.ZodType<T>): Promise<T> {
  await authorize(c);
  const read = schema.safeParse(await readJsonBody(c, BODY_MAX_BYTES));
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw new ScimError(400, `${issue?.path.join('.') ?? 'body'}: ${issue?.message ?? 'is not valid'}`, 'invalidValue');
}

function listDocument(Resources: readonly object[], totalResults: number, startIndex: number) {
  const schemas = ['urn:ietf:params:scim:api:messages:2.0:ListResponse'];
  return { schemas, totalResults, startIndex, itemsPerPage: Resources.length, Resources };
}

function answer(c: ScimContext, document: object, status: 200 | 201 = 200): Response {
  return c.body(JSON.stringify(document), status, { 'content-type': CONTENT_TYPE, 'cache-control': 'no-store' });
}
