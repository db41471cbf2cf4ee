/** Creates and updates users that an identity provider confirms. */
import { and, eq } from 'drizzle-orm';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import type { Env } from '../../env.ts';
import { notifyRegistry } from '../../platform/notify-registry.ts';
import type { Account } from '../account.ts';
import { auditLog, users } from '../account-tables.ts';
import { database, queryOrUnavailable } from '../database.ts';
import { findUser } from '../find-key.ts';
import { newId } from '../secrets.ts';
import { homeProject, syncMemberships } from './claimed-projects.ts';
import { type Claims, displayName, type MappedClaims as Mapped, mapClaims, type OidcIssuer } from './oidc-config.ts';

type User = typeof users.$inferSelect;
type MappedClaims = Mapped & { at: number };

interface SignIn {
  account: Account;
  user: User;
}

/**
 * Returns the account that `claims` describe. Creates the user if the issuer's setting admits it, and updates it if
 * newer claims differ from the stored values. `signIn`: a user signs in; otherwise a program sent a token, and missing
 * claims change nothing.
 * @throws ApiError 403 if the user is not admitted or is disabled; 503 if D1 cannot be reached
 */
export async function findOrCreateUser(
  env: Pick<Env, 'DB'> & Partial<Pick<Env, 'REGISTRY'>>,
  config: OidcIssuer,
  claims: Claims & { sub: string },
  now: number,
  signIn = false,
): Promise<SignIn> {
  const identity = { issuer: config.issuer, subject: claims.sub };
  const claimed = { ...mapClaims(config, claims, signIn), at: madeAt(claims, now, signIn) };
  let found = await findUser(env, identity);
  const notMapped = config.admits === 'mapped' && !claimed.matches;
  if (found === 'unknown') {
    if (config.admits === 'known' || notMapped) throw notAdmitted();
    await create(env, identity, claimed, now);
    found = await findUser(env, identity);
    if (typeof found === 'object') await syncMemberships(env, found.user, claimed.projects, now);
  } else if (typeof found === 'object' && isNewer(claimed, found.user, signIn)) {
    // Older claims are skipped: their token is still valid, but must not restore rights that newer claims have removed.
    const placed = await syncMemberships(env, found.user, claimed.projects, now);
    if ((await update(env, found.user, claimed, now)) || placed) {
      found = await findUser(env, identity);
      // The user's rights have changed, so every isolate must read the account again.
      const { REGISTRY } = env;
      if (REGISTRY !== undefined) await notifyRegistry({ REGISTRY }, (registry) => registry.reloadSettings());
    }
  }
  // The user exists from an earlier login, but no claim is mapped now. The update above has already removed the rights
  // that earlier claims gave to the user's keys.
  if (notMapped) throw notAdmitted();
  if (typeof found === 'object') return found;
  throw new ApiError('permission_denied', 'Your account here is disabled. Ask an operator of this gateway.');
}

/** A sign-in always confirms a user that the provider refused before. The clock of the provider may be slow. */
function isNewer({ at }: MappedClaims, { claimsAt }: User, signIn: boolean): boolean {
  const refusedAt = claimsAt !== null && claimsAt < 0 ? -claimsAt : undefined;
  return refusedAt === undefined ? at >= (claimsAt ?? 0) : signIn || at > refusedAt;
}

/**
 * Returns when the claims were made, in milliseconds since the epoch. Without `iat` (which RFC 9068 §2.2 requires) the
 * result is `now` for a sign-in and 0 for a token.
 */
function madeAt({ iat }: Claims, now: number, signIn: boolean): number {
  if (typeof iat === 'number' && iat > 0) return Math.min(now, iat * 1_000);
  return signIn ? Math.floor(now / 1_000) * 1_000 : 0;
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
    name: claimed.name ?? displayName(subject),
    email: claimed.email ?? null,
    role: claimed.role ?? ('consumer' as const),
    provider: claimed.provider ?? null,
    projectId: claimed.projects?.own ?? null,
    groups: claimed.groups ?? null,
    issuer,
    subject,
    createdAt: now,
    lastLoginAt: now,
    claimsAt: claimed.at || null,
  };
  const line = { at: now, actor: 'login', action: 'user.create', object: row.id, after: shown(row) };
  // If two requests create the same user concurrently, the second insertion does nothing.
  await queryOrUnavailable(
    db.batch([db.insert(users).values(row).onConflictDoNothing(), db.insert(auditLog).values(line)]),
  );
}

/** Replaces stored values by those that the claims decide. Returns true if that changed the user's rights. */
async function update(env: Pick<Env, 'DB'>, user: User, claimed: MappedClaims, now: number): Promise<boolean> {
  const claimedRights = {
    role: claimed.role ?? user.role,
    provider: claimed.role === undefined ? user.provider : (claimed.provider ?? null),
    projectId: homeProject(user, claimed.projects),
    groups: claimed.groups ?? user.groups,
  };
  const { name = user.name, email = user.email } = claimed;
  const after = { ...claimedRights, name, email };
  const changed =
    claimedRights.role !== user.role ||
    claimedRights.provider !== user.provider ||
    claimedRights.projectId !== user.projectId ||
    (claimedRights.groups ?? []).join() !== (user.groups ?? []).join();
  const fresh = user.lastLoginAt !== null && now - user.lastLoginAt < 60_000;
  const sameClaims = claimed.at - (user.claimsAt ?? 0) < 60_000;
  if (!changed && fresh && sameClaims && after.name === user.name && after.email === user.email) return false;
  const db = database(env);
  const write = db
    .update(users)
    .set({ ...after, lastLoginAt: now, claimsAt: claimed.at || user.claimsAt })
    .where(and(eq(users.id, user.id)));
  const line = { at: now, actor: 'login', action: 'user.update', object: user.id };
  const auditLine = { ...line, before: shown(user), after: shown({ ...user, ...after }) };
  if (changed) await queryOrUnavailable(db.batch([write, db.insert(auditLog).values(auditLine)]));
  else await queryOrUnavailable(write);
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
