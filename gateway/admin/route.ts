/** A route of the admin REST, said once: who may call it, what goes in, what comes out, and how it is described. */
import type { Context } from 'hono';
import * as z from 'zod';
import { ApiError } from '../../shared/openai/errors.ts';
import { type Account, isRoleAtLeast, requireScope } from '../accounts/account.ts';
import { recordLastUse } from '../accounts/last-used.ts';
import type { Role } from '../accounts/schema.ts';
import type { Env } from '../env.ts';
import { parseWithSchema, readParsedBody, readQuery } from '../http/parse-body.ts';
import { adminCaller } from './caller.ts';

type AdminContext = Context<{ Bindings: Env }>;

/** Who calls. */
export interface AdminCaller {
  account: Account;
  /** Logged in by a browser or an identity provider's token, not by a key that programs hold. */
  login: boolean;
}

/** One call, parsed and permitted. */
export interface AdminCall<Body = unknown, Query = unknown> extends AdminCaller {
  c: AdminContext;
  env: Env;
  /** Milliseconds since the epoch. */
  now: number;
  body: Body;
  query: Query;
  /** Of the path. */
  param(name: string): string;
  /** In the audit log. */
  actor: string;
}

export interface AdminRoute {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** Below /admin, as Hono writes it. */
  path: string;
  /** Of parts of the path that are no text of any kind. */
  params?: Readonly<Record<string, z.ZodType<string>>>;
  summary: string;
  /** The lowest role that may call it. What of it a role sees is the handler's business. */
  role: Role;
  /** A caller that is not an operator must have logged in: a key that leaked must not make more keys. */
  login?: true;
  /** A key with this scope may call it too, besides `admin` and, for GET, `admin:read`. */
  scope?: 'usage';
  body?: z.ZodType;
  query?: z.ZodType;
  /** Of its answer, where that is not 201 of a POST, which makes something, or 200 of all others. */
  status?: 202;
  /** A POST that names its thing: it may be repeated without an `idempotency-key`. */
  repeatable?: true;
  /** Of a JSON answer. */
  answer?: z.ZodType;
  /** Of the answer to a POST that made its thing before, 200: without its secret. Absent: as `answer`. */
  again?: z.ZodType;
  run(c: AdminContext): Promise<Response>;
}

interface Definition<Body, Query> extends Omit<AdminRoute, 'run' | 'body' | 'query'> {
  body?: z.ZodType<Body>;
  query?: z.ZodType<Query>;
  /** Gives what is answered as JSON, or a response. */
  run(call: AdminCall<Body, Query>): Promise<object | Response>;
}

export function route<Body = undefined, Query = undefined>(definition: Definition<Body, Query>): AdminRoute {
  return { ...definition, run: (c) => answer(c, definition) };
}

async function answer<Body, Query>(c: AdminContext, definition: Definition<Body, Query>): Promise<Response> {
  const now = Date.now();
  const caller = await adminCaller(c.env, c.req.raw, now);
  recordLastUse(caller.account, c.env, c.executionCtx, now);
  permit(caller, definition);
  for (const [name, schema] of Object.entries(definition.params ?? {}))
    parseWithSchema({ [name]: c.req.param(name) ?? '' }, z.object({ [name]: schema }));
  const call: AdminCall<Body, Query> = {
    ...caller,
    c,
    env: c.env,
    now,
    actor: caller.account.keyId,
    param: (name) => c.req.param(name) ?? '',
    query: (definition.query === undefined ? undefined : readQuery(c.req.raw, definition.query)) as Query,
    body: (definition.body === undefined ? undefined : await readParsedBody(c, definition.body)) as Body,
  };
  const result = await definition.run(call);
  return result instanceof Response ? result : c.json(result, 200, { 'cache-control': 'no-store' });
}

type Permission = Pick<AdminRoute, 'method' | 'role' | 'login' | 'scope'>;

/** @throws ApiError 403 permission_denied */
function permit({ account, login }: AdminCaller, { method, role, login: byLogin, scope }: Permission): void {
  if (!isRoleAtLeast(account.role, role)) {
    throw new ApiError('permission_denied', `This needs the role ${role}; yours is ${account.role}.`);
  }
  if (byLogin && !login && account.role !== 'operator') {
    throw new ApiError('permission_denied', 'This needs a login: a key cannot make or change keys.');
  }
  const read = method === 'get' ? (['admin:read'] as const) : [];
  requireScope(account, ...(scope === undefined ? [] : [scope]), ...read, 'admin');
}
