/**
 * Sets a user's memberships in projects by the claims of the identity provider. Each sign-in adds and removes the
 * memberships that claims decide; memberships that this gateway's operators or leads granted stay.
 */
import { and, eq, inArray, isNull } from 'drizzle-orm';
import type { BatchItem } from 'drizzle-orm/batch';
import type { Env } from '../../env.ts';
import { auditLog, projectMembers, projects, type users } from '../account-tables.ts';
import { database, queryOrUnavailable } from '../database.ts';
import { leaveProject } from '../user-keys.ts';
import type { MappedProjects } from './oidc-config.ts';

type User = Pick<typeof users.$inferSelect, 'id' | 'projectId'>;
type Store = Pick<Env, 'DB'>;

/** Maximum statements per transaction. D1 runs at most a thousand in one call. */
const BATCH = 200;

/**
 * Returns the project in which a user's keys are created. A project that operators assigned stays, unless the claims
 * decide it.
 */
export function homeProject({ projectId }: User, claimed: MappedProjects | undefined): string | null {
  if (claimed === undefined) return projectId;
  return claimed.own ?? (projectId !== null && claimed.decided.has(projectId) ? null : projectId);
}

/**
 * Sets the memberships that the claims give. Call this before the user's home project is written. Keys in projects that
 * the user has left are revoked. Returns true if something changed.
 * @throws ApiError 503 if D1 cannot be reached
 */
export async function syncMemberships(
  env: Store,
  user: User,
  claimed: MappedProjects | undefined,
  now: number,
): Promise<boolean> {
  if (claimed === undefined) return false;
  const db = database(env);
  const own = homeProject(user, claimed);
  const before = await queryOrUnavailable(db.select().from(projectMembers).where(eq(projectMembers.userId, user.id)));
  const wanted = await existing(env, claimed.members);
  const local = new Set(before.filter((row) => !row.claimed).map(({ projectId }) => projectId));
  const lapsed = before.filter((row) => row.claimed && !wanted.has(row.projectId));
  const line = (action: string, object: string, details: object) =>
    db.insert(auditLog).values({ at: now, actor: 'login', action, object, ...details });
  const left = new Set(lapsed.map(({ projectId }) => projectId));
  if (user.projectId !== null && user.projectId !== own) left.add(user.projectId);
  for (const id of [own, ...wanted.keys(), ...local]) if (id !== null) left.delete(id);
  // Keys are revoked before memberships are deleted. If this function stops halfway, the next sign-in still finds the
  // membership and revokes the remaining keys.
  const writes = [...left].map((projectId) =>
    leaveProject(env, { userId: user.id, projectId }, { actor: 'login', now }),
  );
  for (const { id, projectId, lead } of lapsed)
    writes.push([
      db.delete(projectMembers).where(and(eq(projectMembers.id, id), eq(projectMembers.claimed, true))),
      line('member.delete', projectId, { before: { user_id: user.id, lead } }),
    ]);
  for (const [projectId, { lead }] of wanted) {
    const known = before.find((row) => row.projectId === projectId);
    if (local.has(projectId) || known?.lead === lead) continue;
    const row = { id: `${projectId}/${user.id}`, projectId, userId: user.id, lead, claimed: true, createdAt: now };
    const target = projectMembers.id;
    // A membership that an operator or a lead granted meanwhile stays as it is.
    const write = { target, set: { lead }, setWhere: eq(projectMembers.claimed, true) };
    writes.push([
      db.insert(projectMembers).values(row).onConflictDoUpdate(write),
      line('member.put', projectId, { after: { user_id: user.id, lead } }),
    ]);
  }
  for (const some of transactions(writes)) {
    const [first, ...others] = some;
    if (first !== undefined) await queryOrUnavailable(db.batch([first, ...others]));
  }
  return writes.length > 0;
}

/** Groups writes into transactions. A write and its line in the audit log are always in the same transaction. */
function transactions(writes: readonly (readonly BatchItem<'sqlite'>[])[]): BatchItem<'sqlite'>[][] {
  const all: BatchItem<'sqlite'>[][] = [[]];
  for (const one of writes) {
    const last = all.at(-1);
    if (last !== undefined && last.length + one.length <= BATCH) last.push(...one);
    else all.push([...one]);
  }
  return all;
}

/** Returns the projects that the claims name, if they exist and are not disabled. */
async function existing(env: Store, members: MappedProjects['members']): Promise<Map<string, { lead: boolean }>> {
  const ids = [...members.keys()];
  const there = new Map<string, { lead: boolean }>();
  // D1 accepts at most a hundred values in one statement, so projects are read in groups.
  for (let from = 0; from < ids.length; from += 90) {
    const some = and(inArray(projects.id, ids.slice(from, from + 90)), isNull(projects.disabledAt));
    for (const { id } of await queryOrUnavailable(database(env).select({ id: projects.id }).from(projects).where(some)))
      there.set(id, members.get(id) ?? { lead: false });
  }
  return there;
}
