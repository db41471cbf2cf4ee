/** Who works in a project beside those whose own it is. Operators make leads; leads let members in and out of their own project. */
import { and, asc, count, eq, inArray, isNull, or } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/errors.ts';
import { asked, database } from '../../accounts/database.ts';
import { endKeysIn } from '../../accounts/own-keys.ts';
import { projectMembers, projects, users } from '../../accounts/schema.ts';
import type { Env } from '../../env.ts';
import { change } from '../change.ts';
import { listOf } from '../fields.ts';
import { rfc3339 } from '../list.ts';
import { requireProject, requireUser } from '../references.ts';
import { type AdminRoute, type Call, route } from '../route.ts';

type Member = typeof projectMembers.$inferSelect;

/** A lab's largest group, and what one page shows. */
const MEMBERS_MAX = 1_000;

const memberSchema = z.object({
  object: z.literal('project_member'),
  project_id: z.string(),
  user_id: z.string(),
  name: z.string(),
  /** They let members in and out. */
  lead: z.boolean(),
  /** By their claims: each sign-in says it again. */
  claimed: z.boolean(),
  created_at: z.iso.datetime(),
});
const putSchema = z.strictObject({
  /** Operators alone say so. */
  lead: z.boolean().optional(),
});

const mineSchema = z.object({
  object: z.literal('my_project'),
  id: z.string(),
  name: z.string(),
  lead: z.boolean(),
  /** Where keys are made that name no project. */
  home: z.boolean(),
});

export const memberRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/me/projects',
    summary: 'The projects that the caller works in.',
    answer: listOf(mineSchema),
    run: myProjects,
  }),
  route({
    role: 'consumer',
    method: 'get',
    path: '/projects/:id/members',
    summary: 'Who works in a project. Operators and its leads read it.',
    answer: listOf(memberSchema),
    run: async (call) => {
      const id = await requireLead(call);
      const query = database(call.env)
        .select({ member: projectMembers, name: users.name })
        .from(projectMembers)
        .innerJoin(users, eq(users.id, projectMembers.userId))
        .where(eq(projectMembers.projectId, id))
        .orderBy(asc(projectMembers.createdAt))
        .limit(MEMBERS_MAX);
      const rows = await asked(query);
      return { object: 'list', data: rows.map(({ member, name }) => view(member, name)), has_more: false };
    },
  }),
  route({
    role: 'consumer',
    login: true,
    method: 'put',
    path: '/projects/:id/members/:user',
    summary: 'Let a person work in a project and make keys in it. Leads of the project may; only operators make leads.',
    body: putSchema,
    answer: memberSchema,
    run: putMember,
  }),
  route({
    role: 'consumer',
    login: true,
    method: 'delete',
    path: '/projects/:id/members/:user',
    summary: 'A person works in a project no more: their keys in it are revoked. A lead is let out by operators.',
    answer: z.object({ object: z.literal('project_member'), deleted: z.boolean() }),
    run: deleteMember,
  }),
];

async function myProjects({ env, account }: Call): Promise<object> {
  const { userId } = account;
  if (userId === undefined) return { object: 'list', data: [], has_more: false };
  const db = database(env);
  const mine = eq(projectMembers.userId, userId);
  const member = db.select({ id: projectMembers.projectId }).from(projectMembers).where(mine);
  const own = db.select({ id: users.projectId }).from(users).where(eq(users.id, userId));
  // Their ids stay in the database: D1 takes a hundred values in one statement.
  const theirs = and(isNull(projects.disabledAt), or(inArray(projects.id, member), inArray(projects.id, own)));
  const [members, [person], known] = await asked(
    db.batch([
      db.select().from(projectMembers).where(mine).limit(MEMBERS_MAX),
      db.select({ home: users.projectId }).from(users).where(eq(users.id, userId)),
      db.select({ id: projects.id, name: projects.name }).from(projects).where(theirs).limit(MEMBERS_MAX),
    ]),
  );
  const data = known.map(({ id, name }) => {
    const lead = members.some((member) => member.projectId === id && member.lead);
    return { object: 'my_project' as const, id, name, lead, home: person?.home === id };
  });
  return { object: 'list', data, has_more: false };
}

/** The project of the path, where the caller leads it. @throws ApiError 404: it is there for nobody else */
async function requireLead(call: Call<unknown>): Promise<string> {
  const id = call.param('id');
  if (await leads(call, id)) return id;
  throw new ApiError('not_found', `There is no project with id "${id.slice(0, 64)}" that you lead.`);
}

export async function leads({ account, env }: Pick<Call, 'account' | 'env'>, projectId: string): Promise<boolean> {
  if (account.role === 'operator') return true;
  return (await memberOf(env, projectId, account.userId))?.lead === true;
}

export async function memberOf(
  env: Pick<Env, 'DB'>,
  projectId: string,
  userId: string | undefined,
): Promise<Member | undefined> {
  if (userId === undefined) return undefined;
  const [row] = await asked(
    database(env)
      .select()
      .from(projectMembers)
      .where(eq(projectMembers.id, memberId(projectId, userId))),
  );
  return row;
}

export function memberId(projectId: string, userId: string): string {
  return `${projectId}/${userId}`;
}

async function putMember(call: Call<z.infer<typeof putSchema>>): Promise<object> {
  const { env, now, account, body } = call;
  const projectId = await requireLead(call);
  const { lead } = body;
  if (lead !== undefined && account.role !== 'operator')
    throw new ApiError('permission_denied', 'Operators say who leads a project.');
  await requireProject(env, projectId);
  const person = await requireUser(env, call.param('user'));
  const before = await memberOf(env, projectId, person.id);
  const db = database(env);
  const [all] = await asked(
    db.select({ n: count() }).from(projectMembers).where(eq(projectMembers.projectId, projectId)),
  );
  if (before === undefined && (all?.n ?? 0) >= MEMBERS_MAX)
    throw new ApiError('unprocessable_content', `A project has ${MEMBERS_MAX} members at most.`);
  // A lead would make what claims gave outlast them, their own lead above all.
  if (before?.claimed === true && account.role !== 'operator') return view(before, person.name);
  const row: Member = {
    claimed: false,
    id: memberId(projectId, person.id),
    projectId,
    userId: person.id,
    lead: lead ?? before?.lead ?? false,
    createdAt: before?.createdAt ?? now,
  };
  const set = { claimed: false, ...(lead !== undefined && { lead }) };
  const write = db.insert(projectMembers).values(row).onConflictDoUpdate({ target: projectMembers.id, set });
  // Without the name: the audit log of a project outlives the person.
  const was = before && { user_id: person.id, lead: before.lead };
  const after = { user_id: person.id, lead: row.lead };
  await change(call, [write], { action: 'member.put', object: projectId, before: was, after });
  return view(row, person.name);
}

async function deleteMember(call: Call): Promise<object> {
  const { env, account } = call;
  const projectId = await requireLead(call);
  const before = await memberOf(env, projectId, call.param('user'));
  if (before === undefined) return { object: 'project_member', deleted: false };
  if (before.claimed) {
    const message =
      'Their identity provider says so, and would again at their next sign-in: take them out of the group.';
    throw new ApiError('unprocessable_content', message, { param: 'user' });
  }
  if (before.lead && account.role !== 'operator')
    throw new ApiError('permission_denied', 'Operators say who leads a project.');
  const db = database(env);
  const { userId } = before;
  const gone = db.delete(projectMembers).where(eq(projectMembers.id, before.id));
  // Whose home it is works on in it: operators, or their identity provider, say so.
  const [person] = await asked(db.select({ home: users.projectId }).from(users).where(eq(users.id, userId)));
  const ends = person?.home === projectId ? [] : endKeysIn(db, { userId, projectId }, call);
  await change(call, [gone, ...ends], {
    action: 'member.delete',
    object: projectId,
    before: { user_id: userId, lead: before.lead },
  });
  return { object: 'project_member', deleted: true };
}

function view(row: Member, name: string): z.infer<typeof memberSchema> {
  const { projectId: project_id, userId: user_id, lead, claimed, createdAt } = row;
  return { object: 'project_member', project_id, user_id, name, lead, claimed, created_at: rfc3339(createdAt) };
}
