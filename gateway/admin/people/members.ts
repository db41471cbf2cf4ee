/**
 * Users that work in a project, and their limits. Operators appoint leads; leads add, remove and limit the members of
 * their project.
 */
import { and, count, eq, inArray, isNull, or } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { memberLimits, projectMembers, projects, users } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { limitAboveProject } from '../../accounts/limits/member-limits.ts';
import { leaveProject } from '../../accounts/user-keys.ts';
import type { Env } from '../../env.ts';
import { type Limits, limitsSchema } from '../../settings/limits-schema.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange } from '../apply-change.ts';
import { listSchema } from '../field-schemas.ts';
import { requireProject, requireUser } from '../require-existing.ts';
import {
  MEMBERS_MAX,
  type MemberRow,
  memberId,
  memberSchema,
  memberView,
  projectWorkers,
  readMemberView,
  requireProjectWorker,
} from './member-view.ts';

const putSchema = z.strictObject({
  /** True if the user leads the project. Only operators may set it. */
  lead: z.boolean().optional(),
});

const mineSchema = z.object({
  object: z.literal('my_project'),
  id: z.string(),
  name: z.string(),
  lead: z.boolean(),
  /** True if this is the user's home project, in which keys are created if they name no project. */
  home: z.boolean(),
});

export const memberRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/me/projects',
    summary: 'List the projects of the caller.',
    answer: listSchema(mineSchema),
    run: myProjects,
  }),
  route({
    role: 'consumer',
    method: 'get',
    path: '/projects/:id/members',
    summary:
      'List the users of a project: its members, and users with this home project. Only for operators and leads of the project.',
    answer: listSchema(memberSchema),
    run: async (call) => {
      const id = await requireLead(call);
      const known = await projectWorkers(call.env, id);
      return {
        object: 'list',
        data: known.slice(0, MEMBERS_MAX).map(memberView),
        has_more: known.length > MEMBERS_MAX,
      };
    },
  }),
  route({
    role: 'consumer',
    method: 'get',
    path: '/projects/:id/members/:user',
    summary: 'Return one user of a project. Only for operators and leads of the project.',
    answer: memberSchema,
    run: async (call) => readMemberView(call.env, await requireLead(call), call.param('user')),
  }),
  route({
    role: 'consumer',
    login: true,
    method: 'put',
    path: '/projects/:id/members/:user',
    summary:
      'Add a user to a project, so that the user can create keys in it. For leads of the project and operators; only operators may set lead.',
    body: putSchema,
    answer: memberSchema,
    run: putMember,
  }),
  route({
    role: 'consumer',
    login: true,
    method: 'patch',
    path: '/projects/:id/members/:user',
    summary:
      'Set a limit for all keys of a user in a project, at most the limit of the project. For leads of the project and operators.',
    body: z.strictObject({ limits: limitsSchema.nullable() }),
    answer: memberSchema,
    run: patchMember,
  }),
  route({
    role: 'consumer',
    login: true,
    method: 'delete',
    path: '/projects/:id/members/:user',
    summary: 'Remove a user from a project and revoke their keys in it. Only operators may remove a lead.',
    answer: z.object({ object: z.literal('project_member'), deleted: z.boolean() }),
    run: deleteMember,
  }),
];

async function myProjects({ env, account }: AdminCall): Promise<object> {
  const { userId } = account;
  if (userId === undefined) return { object: 'list', data: [], has_more: false };
  const db = database(env);
  const mine = eq(projectMembers.userId, userId);
  const member = db.select({ id: projectMembers.projectId }).from(projectMembers).where(mine);
  const own = db.select({ id: users.projectId }).from(users).where(eq(users.id, userId));
  // The ids stay in subqueries, because D1 accepts at most a hundred values in one statement.
  const theirs = and(isNull(projects.disabledAt), or(inArray(projects.id, member), inArray(projects.id, own)));
  const [members, [person], known] = await queryOrUnavailable(
    db.batch([
      db.select().from(projectMembers).where(mine).limit(MEMBERS_MAX),
      db.select({ home: users.projectId }).from(users).where(eq(users.id, userId)),
      db
        .select({ id: projects.id, name: projects.name })
        .from(projects)
        .where(theirs)
        .limit(MEMBERS_MAX + 1),
    ]),
  );
  const data = known.slice(0, MEMBERS_MAX).map(({ id, name }) => {
    const lead = members.some((member) => member.projectId === id && member.lead);
    return { object: 'my_project' as const, id, name, lead, home: person?.home === id };
  });
  return { object: 'list', data, has_more: known.length > MEMBERS_MAX };
}

/**
 * Returns the project in the path, if the caller leads it.
 * @throws ApiError 404 otherwise, even if the project exists
 */
async function requireLead(call: AdminCall<unknown>): Promise<string> {
  const id = call.param('id');
  if (await isProjectLead(call, id)) return id;
  throw new ApiError('not_found', `There is no project with id "${id.slice(0, 64)}" that you lead.`);
}

export async function isProjectLead(
  { account, env }: Pick<AdminCall, 'account' | 'env'>,
  projectId: string,
): Promise<boolean> {
  if (account.role === 'operator') return true;
  return (await findMember(env, projectId, account.userId))?.lead === true;
}

export async function findMember(
  env: Pick<Env, 'DB'>,
  projectId: string,
  userId: string | undefined,
): Promise<MemberRow | undefined> {
  if (userId === undefined) return undefined;
  const [row] = await queryOrUnavailable(
    database(env)
      .select()
      .from(projectMembers)
      .where(eq(projectMembers.id, memberId(projectId, userId))),
  );
  return row;
}

async function putMember(call: AdminCall<z.infer<typeof putSchema>>): Promise<object> {
  const { env, now, account, body } = call;
  const projectId = await requireLead(call);
  const { lead } = body;
  if (lead !== undefined && account.role !== 'operator')
    throw new ApiError('permission_denied', 'Only operators can appoint the leads of a project.');
  await requireProject(env, projectId);
  const person = await requireUser(env, call.param('user'));
  const before = await findMember(env, projectId, person.id);
  const db = database(env);
  const [all] = await queryOrUnavailable(
    db.select({ n: count() }).from(projectMembers).where(eq(projectMembers.projectId, projectId)),
  );
  if (before === undefined && (all?.n ?? 0) >= MEMBERS_MAX)
    throw new ApiError('unprocessable_content', `A project has at most ${MEMBERS_MAX} members.`);
  // Without this check a lead could make a claimed membership permanent, for example their own.
  if (before?.claimed === true && account.role !== 'operator') return readMemberView(env, projectId, person.id);
  const row: MemberRow = {
    claimed: false,
    id: memberId(projectId, person.id),
    projectId,
    userId: person.id,
    lead: lead ?? before?.lead ?? false,
    createdAt: before?.createdAt ?? now,
  };
  const set = { claimed: false, ...(lead !== undefined && { lead }) };
  const write = db.insert(projectMembers).values(row).onConflictDoUpdate({ target: projectMembers.id, set });
  // The user's name is omitted, because the audit log of a project outlives the user.
  const was = before && { user_id: person.id, lead: before.lead };
  const after = { user_id: person.id, lead: row.lead };
  await applyChange(call, [write], { action: 'member.put', object: projectId, before: was, after });
  return readMemberView(env, projectId, person.id);
}

async function patchMember(call: AdminCall<{ limits: Limits | null }>): Promise<object> {
  const { env, now, body } = call;
  const projectId = await requireLead(call);
  const project = await requireProject(env, projectId);
  const before = await requireProjectWorker(env, projectId, call.param('user'));
  const { limits } = body;
  const above = limits === null ? undefined : limitAboveProject(limits, project.limits);
  if (above !== undefined) {
    const message = `limits.${above.path}: must be at most ${above.allowed}, the limit of the project.`;
    throw new ApiError('unprocessable_content', message, { param: 'limits' });
  }
  const db = database(env);
  const { userId } = before;
  const row = { id: memberId(projectId, userId), projectId, userId, updatedAt: now };
  const target = memberLimits.id;
  const write =
    limits === null
      ? db.delete(memberLimits).where(eq(target, row.id))
      : db
          .insert(memberLimits)
          .values({ ...row, limits })
          .onConflictDoUpdate({ target, set: { limits, updatedAt: now } });
  // The user is the object of this line, so that isolates read the user's accounts again, and so that the line is
  // erased with the user.
  const auditDetails = (one: Limits | null) => ({ project_id: projectId, limits: one });
  await applyChange(call, [write], {
    action: 'user.limit',
    object: userId,
    before: auditDetails(before.limits),
    after: auditDetails(limits),
  });
  return readMemberView(env, projectId, userId);
}

async function deleteMember(call: AdminCall): Promise<object> {
  const { env, account } = call;
  const projectId = await requireLead(call);
  const before = await findMember(env, projectId, call.param('user'));
  if (before === undefined) return { object: 'project_member', deleted: false };
  if (before.claimed) {
    const message =
      'The identity provider made this user a member, and would again at the next login: remove the user from the group there.';
    throw new ApiError('unprocessable_content', message, { param: 'user' });
  }
  if (before.lead && account.role !== 'operator')
    throw new ApiError('permission_denied', 'Only operators can remove a lead of a project.');
  const db = database(env);
  const { userId } = before;
  const gone = db.delete(projectMembers).where(eq(projectMembers.id, before.id));
  // If this is the user's home project, the user still works in it after the end of the membership. Only operators or
  // the identity provider change home projects.
  const [person] = await queryOrUnavailable(
    db.select({ home: users.projectId }).from(users).where(eq(users.id, userId)),
  );
  const ends = person?.home === projectId ? [] : leaveProject(env, { userId, projectId }, call);
  await applyChange(call, [gone, ...ends], {
    action: 'member.delete',
    object: projectId,
    before: { user_id: userId, lead: before.lead },
  });
  return { object: 'project_member', deleted: true };
}
