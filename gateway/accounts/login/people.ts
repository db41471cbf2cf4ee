/** Persons that an identity provider vouches for become users here. */
import { and, eq } from 'drizzle-orm';
import { ApiError } from '../../../shared/openai/errors.ts';
import type { Env } from '../../env.ts';
import { tellRegistry } from '../../tell-registry.ts';
import type { Account } from '../account.ts';
import { asked, database } from '../database.ts';
import { findUser } from '../look-up.ts';
import { auditLog, users } from '../schema.ts';
import { newId } from '../secrets.ts';
import { ownProject, placeInProjects } from './claimed-projects.ts';
import { type Claims, type MappedClaims, mapClaims, type OidcIssuer, shownName } from './oidc-config.ts';

type User = typeof users.$inferSelect;

export interface Arrival {
  account: Account;
  user: User;
}

/**
 * The account that `claims` are about; made where the issuer admits them, brought up to date where claims say more.
 * `signIn`: a person signs in; otherwise a program brought a token, and claims that it lacks change nothing.
 * @throws ApiError 403 where they are not admitted or disabled, 503 when D1 cannot say
 */
export async function arrive(
  env: Pick<Env, 'DB'> & Partial<Pick<Env, 'REGISTRY'>>,
  config: OidcIssuer,
  claims: Claims & { sub: string },
  now: number,
  signIn = false,
): Promise<Arrival> {
  const identity = { issuer: config.issuer, subject: claims.sub };
  const claimed = mapClaims(config, claims, signIn);
  let found = await findUser(env, identity);
  const notMapped = config.admits === 'mapped' && !claimed.matches;
  if (found === 'unknown') {
    if (config.admits === 'known' || notMapped) throw notAdmitted();
    await create(env, identity, claimed, now);
    found = await findUser(env, identity);
    if (typeof found === 'object') await placeInProjects(env, found.user, claimed.projects, now);
  } else if (typeof found === 'object') {
    const placed = await placeInProjects(env, found.user, claimed.projects, now);
    if ((await update(env, found.user, claimed, now)) || placed) {
      found = await findUser(env, identity);
      // Their rights are not what they were: every isolate must hear of it.
      const { REGISTRY } = env;
      if (REGISTRY !== undefined) await tellRegistry({ REGISTRY }, (registry) => registry.reloadSettings());
    }
  }
  // Who was mapped once and is no more: their keys have lost what the claims gave them by now.
  if (notMapped) throw notAdmitted();
  if (typeof found === 'object') return found;
  throw new ApiError('permission_denied', 'Your account here is disabled. Ask an operator of this gateway.');
}

function notAdmitted(): ApiError {
  return new ApiError('permission_denied', 'You are not admitted here. Ask an operator of this gateway.');
}

async function create(
  env: Pick<Env, 'DB'>,
  { issuer, subject }: { issuer: string; subject: string },
  claimed: MappedClaims,
  now: number,
): Promise<void> {
  const db = database(env);
  const row = {
    id: newId('user'),
    name: claimed.name ?? shownName(subject),
    email: claimed.email ?? null,
    role: claimed.role ?? ('consumer' as const),
    provider: claimed.provider ?? null,
    projectId: claimed.projects?.own ?? null,
    groups: claimed.groups ?? null,
    issuer,
    subject,
    createdAt: now,
    lastLoginAt: now,
  };
  const line = { at: now, actor: 'login', action: 'user.create', object: row.id, after: shown(row) };
  // Twice at once: one of them makes it, both find it.
  await asked(db.batch([db.insert(users).values(row).onConflictDoNothing(), db.insert(auditLog).values(line)]));
}

/** What claims say wins over what was stored, where they say it. True where that changed the person's rights. */
async function update(env: Pick<Env, 'DB'>, user: User, claimed: MappedClaims, now: number): Promise<boolean> {
  const told = {
    role: claimed.role ?? user.role,
    provider: claimed.role === undefined ? user.provider : (claimed.provider ?? null),
    projectId: ownProject(user, claimed.projects),
    groups: claimed.groups ?? user.groups,
  };
  const { name = user.name, email = user.email } = claimed;
  const after = { ...told, name, email };
  const changed =
    told.role !== user.role ||
    told.provider !== user.provider ||
    told.projectId !== user.projectId ||
    (told.groups ?? []).join() !== (user.groups ?? []).join();
  const fresh = user.lastLoginAt !== null && now - user.lastLoginAt < 60_000;
  if (!changed && fresh && after.name === user.name && after.email === user.email) return false;
  const db = database(env);
  const write = db
    .update(users)
    .set({ ...after, lastLoginAt: now })
    .where(and(eq(users.id, user.id)));
  const line = { at: now, actor: 'login', action: 'user.update', object: user.id };
  const said = { ...line, before: shown(user), after: shown({ ...user, ...after }) };
  if (changed) await asked(db.batch([write, db.insert(auditLog).values(said)]));
  else await asked(write);
  return changed;
}

function shown({
  name,
  email,
  role,
  provider,
  projectId,
  groups,
}: Pick<User, 'name' | 'email' | 'role' | 'provider' | 'projectId' | 'groups'>) {
  return { name, email, role, provider, project_id: projectId, groups: groups ?? [] };
}
