/**
 * Access requests: a user asks for membership in a project, for a model, or for the right to contribute nodes. The
 * project's leads, the model's owner, users with the role of the provider, or an operator decide.
 */
import { and, count, eq, gt, inArray, lt, ne, or, type SQL, sql } from 'drizzle-orm';
import * as z from 'zod';
import { idSchema } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { accessRequests, projectMembers, users } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { catalogue } from '../../accounts/model-tables.ts';
import { newId } from '../../accounts/secrets.ts';
import { sqlFragments } from '../../accounts/sql-fragments.ts';
import { CONTROL_FREE } from '../../http/common-schemas.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange, createOnce } from '../apply-change.ts';
import { expiryMs, isoTime, listSchema, readPage } from '../field-schemas.ts';
import { pageSchema, rfc3339 } from '../pagination.ts';
import { requireProject } from '../require-existing.ts';
import { memberId } from './member-view.ts';
import { isProjectLead } from './members.ts';
import { grantRight, mayGrant, type RightFields, rightFields } from './provider-rights.ts';

type Row = typeof accessRequests.$inferSelect;

/** OPEN_MAX: maximum undecided requests of one user. DAILY_MAX: maximum requests of a user within a day. */
const OPEN_MAX = 10;
const DAILY_MAX = 20;
const DAY_MS = 86_400_000;
/** How long decided requests can be read after they were made. The audit log keeps them for longer. */
const RETENTION_MS = 90 * DAY_MS;
/** Maximum entries of an access list, the same as in models/catalogue.ts. */
const ACCESS_MAX = 100;

const createSchema = z.strictObject({
  project_id: z.string().max(64).optional(),
  model: z.string().min(1).max(256).optional(),
  /** The provider for which the user wants to contribute nodes, with what the user wants. */
  provider: idSchema.optional(),
  ...rightFields,
  reason: z.string().trim().max(500).regex(CONTROL_FREE, 'must be one line').default(''),
});

const decisionSchema = z.strictObject({ status: z.enum(['approved', 'refused']), ...rightFields });
type Decision = z.infer<typeof decisionSchema>;

const requestSchema = z.object({
  object: z.literal('access_request'),
  id: z.string(),
  user_id: z.string(),
  project_id: z.string().nullable(),
  model: z.string().nullable(),
  provider: z.string().nullable(),
  cluster: z.string().nullable(),
  max_nodes: z.number().nullable(),
  expires_at: z.iso.datetime().nullable(),
  reason: z.string(),
  status: z.enum(['open', 'approved', 'refused']),
  created_at: z.iso.datetime(),
  decided_at: z.iso.datetime().nullable(),
});

export const accessRequestRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'post',
    path: '/access-requests',
    summary:
      'Request access to a project, to a model with restricted access, or the right to contribute nodes of a provider.',
    body: createSchema,
    answer: requestSchema,
    run: createRequest,
  }),
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/access-requests',
    summary: 'List requests for access: the caller’s own requests, and requests that the caller may decide.',
    query: pageSchema,
    answer: listSchema(requestSchema.extend({ user_name: z.string().nullable() })),
    run: listRequests,
  }),
  route({
    role: 'consumer',
    login: true,
    method: 'patch',
    path: '/access-requests/:id',
    summary:
      'Approve or refuse a request. For leads of the project, the owner of the model, users with the role of the provider, and operators. An approval of a right to contribute may set its cluster, number of nodes and end. Only operators may approve their own request; other users may withdraw it with the status refused.',
    body: decisionSchema,
    answer: requestSchema,
    run: decide,
  }),
];

async function listRequests(call: AdminCall<undefined, z.infer<typeof pageSchema>>): Promise<object> {
  const { data, has_more } = await readPage(call.env, accessRequests, call.query, seen(call), view);
  const names = new Map<string, string>();
  const ids = [...new Set(data.map(({ user_id }) => user_id))];
  // D1 accepts at most a hundred values in one statement, so names are read in groups.
  for (let from = 0; from < ids.length; from += 90) {
    const some = inArray(users.id, ids.slice(from, from + 90));
    const query = database(call.env).select({ id: users.id, name: users.name }).from(users).where(some);
    for (const { id, name } of await queryOrUnavailable(query)) names.set(id, name);
  }
  return {
    object: 'list',
    data: data.map((one) => ({ ...one, user_name: names.get(one.user_id) ?? null })),
    has_more,
  };
}

async function createRequest(call: AdminCall<z.infer<typeof createSchema>>): Promise<Response> {
  const { account, env, now, body } = call;
  const { userId } = account;
  if (userId === undefined)
    throw new ApiError('permission_denied', 'Only a user can request access; this key belongs to no user.');
  const { project_id: projectId = null, model = null, provider = null, reason } = body;
  const { cluster = null, max_nodes: maxNodes = null } = body;
  if ([projectId, model, provider].filter((one) => one !== null).length !== 1)
    throw new ApiError('unprocessable_content', 'Give exactly one of project_id, model and provider.');
  requireProviderFor(provider, body);
  const row: Row = {
    id: newId('req'),
    userId,
    projectId,
    model,
    provider,
    cluster,
    maxNodes,
    expiresAt: expiryMs(body.expires_at, now),
    reason,
    status: 'open',
    createdAt: now,
    decidedAt: null,
  };
  const db = database(env);
  const old = and(ne(accessRequests.status, 'open'), lt(accessRequests.createdAt, now - RETENTION_MS));
  return createOnce(call, {
    action: 'access_request.create',
    object: row.id,
    after: view(row),
    statements: [db.delete(accessRequests).where(old), db.insert(accessRequests).values(row)],
    shown: view(row),
    check: () => requireRoom(call, userId),
    find: async (id) => {
      const [known] = await queryOrUnavailable(db.select().from(accessRequests).where(eq(accessRequests.id, id)));
      return known && view(known);
    },
  });
}

/** @throws ApiError 422 if a request for something else names a cluster, a number of nodes or an end */
function requireProviderFor(provider: string | null, { cluster, max_nodes, expires_at }: RightFields): void {
  if (provider !== null || [cluster, max_nodes, expires_at].every((one) => one === undefined)) return;
  throw new ApiError('unprocessable_content', 'cluster, max_nodes and expires_at: are for requests with a provider.');
}

/**
 * Checks the number of requests. Does not check whether the requested project or model exists, because the error would
 * reveal its existence to a user without access. The users that decide about the request see what it asks for.
 * @throws ApiError 429
 */
async function requireRoom({ env, now }: AdminCall<unknown>, userId: string): Promise<void> {
  const db = database(env);
  const mine = eq(accessRequests.userId, userId);
  const counted = (where: SQL | undefined) => db.select({ n: count() }).from(accessRequests).where(and(mine, where));
  const [[open], [today]] = await queryOrUnavailable(
    db.batch([counted(eq(accessRequests.status, 'open')), counted(gt(accessRequests.createdAt, now - DAY_MS))]),
  );
  if ((open?.n ?? 0) < OPEN_MAX && (today?.n ?? 0) < DAILY_MAX) return;
  const message = `You may have at most ${OPEN_MAX} open requests, and create at most ${DAILY_MAX} a day.`;
  throw new ApiError('rate_limit_exceeded', message);
}

function seen({ account, env }: AdminCall<unknown, unknown>): SQL | undefined {
  if (account.role === 'operator') return undefined;
  const userId = account.userId ?? '';
  const db = database(env);
  const led = db
    .select({ id: projectMembers.projectId })
    .from(projectMembers)
    .where(and(eq(projectMembers.userId, userId), eq(projectMembers.lead, true)));
  const owned = db.select({ id: catalogue.model }).from(catalogue).where(eq(catalogue.ownerId, userId));
  return or(
    eq(accessRequests.userId, userId),
    inArray(accessRequests.projectId, led),
    inArray(accessRequests.model, owned),
    account.role === 'provider' && account.provider !== undefined
      ? eq(accessRequests.provider, account.provider)
      : undefined,
  );
}

async function decide(call: AdminCall<Decision>): Promise<object> {
  const { env, now, body } = call;
  const id = call.param('id');
  const db = database(env);
  const find = async () => {
    const mine = and(eq(accessRequests.id, id), seen(call));
    return (await queryOrUnavailable(db.select().from(accessRequests).where(mine)))[0];
  };
  const row = await find();
  if (row === undefined) throw new ApiError('not_found', `There is no request with id "${id.slice(0, 64)}".`);
  if (!(await mayDecide(call, row)))
    throw new ApiError(
      'permission_denied',
      'Only leads of the project, the owner of the model, users with the role of the provider and operators can decide.',
    );
  requireOpen(row);
  requireProviderFor(row.provider, body);
  const after = { ...row, status: body.status, decidedAt: now };
  // Of two concurrent decisions the second finds no open request, so its status is NULL, and the whole batch fails with
  // all that it grants.
  const status = sql<Row['status']>`CASE WHEN ${accessRequests.status} = 'open' THEN ${body.status} END`;
  const decided = db.update(accessRequests).set({ status, decidedAt: now }).where(eq(accessRequests.id, id));
  const grants = body.status === 'approved' ? await grant(call, row) : [];
  const what = { action: `access_request.${body.status}`, object: id, before: view(row), after: view(after) };
  try {
    await applyChange(call, [decided, ...grants], what);
  } catch (error) {
    const left = await find();
    if (left !== undefined) requireOpen(left);
    throw error;
  }
  return view(after);
}

/** @throws ApiError 422 if the request was already decided */
function requireOpen({ status }: Row): void {
  if (status !== 'open') throw new ApiError('unprocessable_content', `This request was already ${status}.`);
}

async function mayDecide(call: AdminCall<Decision>, row: Row): Promise<boolean> {
  const { account, env, body } = call;
  if (account.role === 'operator') return true;
  if (account.userId === undefined) return false;
  // Users may withdraw their own requests, because each undecided request counts against OPEN_MAX.
  if (row.userId === account.userId) return body.status === 'refused';
  if (row.projectId !== null) return isProjectLead(call, row.projectId);
  if (row.provider !== null) return mayGrant(account, row.provider);
  const [entry] = await queryOrUnavailable(
    database(env)
      .select({ owner: catalogue.ownerId })
      .from(catalogue)
      .where(eq(catalogue.model, row.model ?? '')),
  );
  return entry?.owner === account.userId;
}

/**
 * Returns the statements that an approval adds to its transaction.
 * @throws ApiError 422 if there is nothing to grant, or if the project does not exist or is disabled
 */
async function grant(call: AdminCall<Decision>, row: Row) {
  const { env, now, body } = call;
  const { userId, projectId, model, provider } = row;
  const db = database(env);
  if (provider !== null) {
    const wanted = {
      cluster: body.cluster ?? row.cluster ?? undefined,
      max_nodes: body.max_nodes ?? row.maxNodes ?? undefined,
      expires_at: body.expires_at ?? isoTime(row.expiresAt) ?? undefined,
    };
    return grantRight(call, userId, provider, wanted);
  }
  if (projectId !== null) {
    await requireProject(env, projectId);
    const id = memberId(projectId, userId);
    const member = { id, projectId, userId, lead: false, claimed: false, createdAt: now };
    return [db.insert(projectMembers).values(member).onConflictDoNothing()];
  }
  const mine = eq(catalogue.model, model ?? '');
  const [entry] = await queryOrUnavailable(db.select({ access: catalogue.access }).from(catalogue).where(mine));
  if (entry?.access == null)
    throw new ApiError('unprocessable_content', 'That model has no access list: every user may use it.');
  if (entry.access.length >= ACCESS_MAX)
    throw new ApiError(
      'unprocessable_content',
      `The access list of that model already has ${ACCESS_MAX} entries: give access to a project instead.`,
    );
  // The statement itself appends to the stored list, so that two concurrent approvals do not overwrite each other.
  const access = sqlFragments(env).jsonListWith(catalogue.access, userId, '');
  return entry.access.includes(userId) ? [] : [db.update(catalogue).set({ access, updatedAt: now }).where(mine)];
}

function view(row: Row): z.infer<typeof requestSchema> {
  return {
    object: 'access_request',
    id: row.id,
    user_id: row.userId,
    project_id: row.projectId,
    model: row.model,
    provider: row.provider,
    cluster: row.cluster,
    max_nodes: row.maxNodes,
    expires_at: isoTime(row.expiresAt),
    reason: row.reason,
    status: row.status,
    created_at: rfc3339(row.createdAt),
    decided_at: isoTime(row.decidedAt),
  };
}
