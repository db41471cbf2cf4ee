/** Responses about users that work in a project, as members or because it is their home project. */
import { and, asc, eq, isNull } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { memberLimits, projectMembers, users } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import type { Env } from '../../env.ts';
import { type Limits, limitsSchema } from '../../settings/limits-schema.ts';
import { rfc3339 } from '../pagination.ts';

export type MemberRow = typeof projectMembers.$inferSelect;
type Store = Pick<Env, 'DB'>;

/** Maximum members of a project, and of one page; larger than a lab's largest group. */
export const MEMBERS_MAX = 1_000;

export const memberSchema = z.object({
  object: z.literal('project_member'),
  project_id: z.string(),
  user_id: z.string(),
  name: z.string(),
  /** True if the user may add and remove members and set their limits. */
  lead: z.boolean(),
  /** True if an identity provider's claims gave the membership; each sign-in renews it. */
  claimed: z.boolean(),
  /** True if this is the user's home project, in which their keys are created if they name no project. */
  home: z.boolean(),
  /** Limits for all keys of the user in this project, set by its leads. Null: none. */
  limits: limitsSchema.nullable(),
  created_at: z.iso.datetime(),
});

export function memberId(projectId: string, userId: string): string {
  return `${projectId}/${userId}`;
}

/** A user that works in a project. `member` undefined: the project is only the user's home project. */
interface ProjectWorker {
  projectId: string;
  userId: string;
  name: string;
  member: MemberRow | undefined;
  home: boolean;
  limits: Limits | null;
  since: number;
}

/**
 * Returns the project's members, then users that are not members but have it as their home project. More than
 * MEMBERS_MAX entries mean that some are missing.
 */
export async function projectWorkers(env: Store, projectId: string, userId?: string): Promise<ProjectWorker[]> {
  const db = database(env);
  const one = userId === undefined ? undefined : eq(users.id, userId);
  // This query is not in the batch, because D1 returns rows of a batch as objects by column name, and both tables have
  // a column `id`.
  const joined = db
    .select({ member: projectMembers, name: users.name, home: users.projectId })
    .from(projectMembers)
    .innerJoin(users, eq(users.id, projectMembers.userId))
    .where(and(eq(projectMembers.projectId, projectId), one))
    .orderBy(asc(projectMembers.createdAt))
    .limit(MEMBERS_MAX + 1);
  const members = await queryOrUnavailable(joined);
  const [homes, limited] = await queryOrUnavailable(
    db.batch([
      db
        .select({ userId: users.id, name: users.name, since: users.createdAt })
        .from(users)
        .where(and(eq(users.projectId, projectId), isNull(users.disabledAt), one))
        .orderBy(asc(users.createdAt))
        .limit(MEMBERS_MAX + 1),
      db
        .select()
        .from(memberLimits)
        .where(
          and(
            eq(memberLimits.projectId, projectId),
            userId === undefined ? undefined : eq(memberLimits.userId, userId),
          ),
        ),
    ]),
  );
  const limits = new Map(limited.map((row) => [row.userId, row.limits]));
  const known = members.map(({ member, name, home }): ProjectWorker => {
    const { userId: id, createdAt } = member;
    return {
      projectId,
      userId: id,
      name,
      member,
      home: home === projectId,
      limits: limits.get(id) ?? null,
      since: createdAt,
    };
  });
  const listed = new Set(known.map((worker) => worker.userId));
  const others = homes
    .filter((person) => !listed.has(person.userId))
    .map((person): ProjectWorker => {
      return { ...person, projectId, member: undefined, home: true, limits: limits.get(person.userId) ?? null };
    });
  return [...known, ...others];
}

/** @throws ApiError 404 if the user does not work in the project */
export async function requireProjectWorker(env: Store, projectId: string, userId: string): Promise<ProjectWorker> {
  const [worker] = await projectWorkers(env, projectId, userId);
  if (worker !== undefined) return worker;
  throw new ApiError('not_found', `The user "${userId.slice(0, 64)}" is not a member of this project.`);
}

export async function readMemberView(env: Store, projectId: string, userId: string): Promise<object> {
  return memberView(await requireProjectWorker(env, projectId, userId));
}

export function memberView({
  projectId,
  userId,
  name,
  member,
  home,
  limits,
  since,
}: ProjectWorker): z.infer<typeof memberSchema> {
  return {
    object: 'project_member',
    project_id: projectId,
    user_id: userId,
    name,
    lead: member?.lead ?? false,
    claimed: member?.claimed ?? false,
    home,
    limits,
    created_at: rfc3339(since),
  };
}
