/** Defines an admin API route: required role, input, output and description. */
import type { Context } from 'hono';
import * as z from 'zod';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { isRoleAtLeast, requireScope } from '../accounts/account.ts';
import type { Role } from '../accounts/account-tables.ts';
import { recordLastUse } from '../accounts/last-used.ts';
import type { Env } from '../env.ts';
import { parseWithSchema, readParsedBody, readQuery } from '../http/parse-body.ts';
import { type AdminCaller, adminCaller } from './admin-caller.ts';

type AdminContext = Context<{ Bindings: Env }>;

/** One request to a route, parsed and authorized. */
export interface AdminCall<Body = unknown, Query = unknown> extends AdminCaller {
  c: AdminContext;
  env: Env;
  /** Time of the request; milliseconds since the epoch. */
  now: number;
  body: Body;
  query: Query;
  /** Returns a parameter of the path. */
  param(name: string): string;
  /** The caller's name in the audit log. */
  actor: string;
}

export interface AdminRoute {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** Path below /admin, in Hono's syntax. */
  path: string;
  /** Schemas of path parameters. A parameter without a schema may be any text. */
  params?: Readonly<Record<string, z.ZodType<string>>>;
  summary: string;
  /** The lowest role that may call the route. The handler decides what each role sees. */
  role: Role;
  /**
   * Set if callers that are not operators must log in and cannot use an API key, because a leaked key must not create
   * more keys.
   */
  login?: true;
  /** A scope that is sufficient to call the route, in addition to `admin` and, for GET, `admin:read`. */
  scope?: 'usage';
  body?: z.ZodType;
  query?: z.ZodType;
  /** HTTP status of the response; absent: 201 for a POST that creates an object, otherwise 200. */
  status?: 202;
  /** Set for a POST that may be repeated without an `idempotency-key`, because its body contains the object's name. */
  repeatable?: true;
  /** Schema of a JSON response. */
  answer?: z.ZodType;
  /**
   * Schema of the response to a repeated POST, with status 200 and without the secret. Absent: the same as `answer`.
   */
  again?: z.ZodType;
  run(c: AdminContext): Promise<Response>;
}

interface Definition<Body, Query> extends Omit<AdminRoute, 'run' | 'body' | 'query'> {
  body?: z.ZodType<Body>;
  query?: z.ZodType<Query>;
  /** Handles a request. Returns the value to send as JSON, or a response. */
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
    throw new ApiError('permission_denied', `This requires the role ${role}; your role is ${account.role}.`);
  }
  if (byLogin && !login && account.role !== 'operator') {
    throw new ApiError('permission_denied', 'This requires a login: an API key cannot create or change keys.');
  }
  const read = method === 'get' ? (['admin:read'] as const) : [];
  requireScope(account, ...(scope === undefined ? [] : [scope]), ...read, 'admin');
}
