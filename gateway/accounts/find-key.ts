/** Reads the account of a key or a user, with all rows that it depends on, in one query to D1. */
import { and, eq, inArray, max, type SQL, sql } from 'drizzle-orm';
import type { SQLiteColumn } from 'drizzle-orm/sqlite-core';
import type { Env } from '../env.ts';
import { type Limits, limitsSchema, USER_LIMITS } from '../settings/limits-schema.ts';
import { TRACE, traceSettingsOf, tracingOf } from '../settings/trace-settings.ts';
import { type Account, type AccountLimits, lowerRole, type Restrictions } from './account.ts';
import { type AccountScope, apiKeys, auditLog, memberLimits, projects, settings, users } from './account-tables.ts';
import { database, queryOrUnavailable } from './database.ts';
import { installationSecret } from './installation-secret.ts';
import { personLimits } from './limits/member-limits.ts';
import { issuersSchema } from './login/oidc-config.ts';
import { type ReceiptIdentity, sealIdentity } from './payer-receipt.ts';

export type KeyRefusal = 'unknown' | 'revoked' | 'expired' | 'disabled' | 'lapsed';
const DAY_MS = 86_400_000;
type Key = typeof apiKeys.$inferSelect;
type User = typeof users.$inferSelect;
type Project = typeof projects.$inferSelect;

/** Returns the account of a key, or the reason why the key is refused. @throws ApiError 503 if D1 cannot be reached */
export async function findKey(
  env: Pick<Env, 'DB'>,
  by: { hash: string } | { id: string },
  now: number,
): Promise<Account | KeyRefusal> {
  const db = database(env);
  const where = 'id' in by ? eq(apiKeys.id, by.id) : eq(apiKeys.hash, by.hash);
  const ofKey = (id: typeof apiKeys.userId | typeof apiKeys.projectId | typeof apiKeys.grantedBy | SQL<string>) =>
    db.select({ id }).from(apiKeys).where(where);
  // One batch is one transaction, so `seen` is exactly as old as the rows. A join is not possible: D1 returns rows of a
  // batch as objects by column name, and two tables have a column `id`.
  const [[key], [parent], [user = null], [project = null], seen, [ofAll], [ofMember], [oidc], [trace]] =
    await queryOrUnavailable(
      db.batch([
        db.select().from(apiKeys).where(where),
        db
          .select()
          .from(apiKeys)
          .where(inArray(apiKeys.id, ofKey(apiKeys.grantedBy))),
        db
          .select()
          .from(users)
          .where(inArray(users.id, ofKey(apiKeys.userId))),
        db
          .select()
          .from(projects)
          .where(inArray(projects.id, ofKey(apiKeys.projectId))),
        db.select({ id: max(auditLog.id) }).from(auditLog),
        db.select({ value: settings.value }).from(settings).where(eq(settings.name, USER_LIMITS)),
        db
          .select()
          .from(memberLimits)
          .where(inArray(memberLimits.id, ofKey(memberOfRow(apiKeys.projectId, apiKeys.userId)))),
        db.select({ value: settings.value }).from(settings).where(eq(settings.name, 'oidc')),
        db.select({ value: settings.value }).from(settings).where(eq(settings.name, TRACE)),
      ]),
    );
  if (key === undefined) return 'unknown';
  const ended = endOf(key, now) ?? (parent && endOf(parent, now));
  if (ended !== undefined) return ended;
  if (isClosed(key.userId, user) || isClosed(key.projectId, project)) return 'disabled';
  const lapsesAt = lapseOf(user, oidc?.value);
  if (lapsesAt <= now) return 'lapsed';
  const role = user === null ? key.role : lowerRole(key.role, user.role);
  return sealed(env, {
    ...ofKeyAndProject(project, key),
    // A machine's key has the current rights of the key that approved it, not the rights of the time of the login.
    restrictions: [key, parent, project].flatMap((row) => (row ? restrictionsOf(row) : [])),
    ...tracingOf(traceSettingsOf(trace?.value), { keyId: key.id, userId: key.userId ?? undefined, project }),
    grantedBy: key.grantedBy ?? undefined,
    keyId: key.id,
    role,
    provider: key.provider ?? user?.provider ?? undefined,
    userId: key.userId ?? undefined,
    groups: user?.groups ?? [],
    scopes: both(key.scopes, parent?.scopes),
    limits: limitsOf(project, key, user, { ofAll: ofAll?.value, ofMember: ofMember?.limits }),
    expiresAt: earliest(key.expiresAt, lapsesAt),
    seen: seen[0]?.id ?? 0,
  });
}

/**
 * Returns when a user's keys stop working, unless the identity provider confirms the user again before then.
 * Milliseconds since the epoch.
 */
function lapseOf(user: User | null, oidc: unknown): number {
  if (user?.claimsAt == null) return Number.POSITIVE_INFINITY;
  if (user.claimsAt < 0) return 0;
  const issuer = issuersSchema.safeParse(oidc).data?.find((one) => one.issuer === user.issuer);
  return issuer?.lapse_days == null ? Number.POSITIVE_INFINITY : user.claimsAt + issuer.lapse_days * DAY_MS;
}

function earliest(expiresAt: number | null, lapsesAt: number): number | undefined {
  const end = Math.min(expiresAt ?? Number.POSITIVE_INFINITY, lapsesAt);
  return end === Number.POSITIVE_INFINITY ? undefined : end;
}

function endOf({ revokedAt, expiresAt }: Key, now: number): KeyRefusal | undefined {
  if (revokedAt !== null) return 'revoked';
  return expiresAt !== null && expiresAt <= now ? 'expired' : undefined;
}

/** Returns the scopes that both keys have. NULL means all scopes. */
function both(own: AccountScope[] | null, parents: AccountScope[] | null | undefined): AccountScope[] | undefined {
  if (own === null || !parents) return own ?? parents ?? undefined;
  return own.filter((scope) => parents.includes(scope));
}

/** Returns the id of the key that replaced a rotated key. @throws ApiError 503 if D1 cannot be reached */
export async function successorOf(env: Pick<Env, 'DB'>, keyId: string): Promise<string | undefined> {
  const [next] = await queryOrUnavailable(
    database(env).select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.rotatedFrom, keyId)).limit(1),
  );
  return next?.id;
}

/** Returns the account of a logged-in user, found by id or by the name at an identity provider. @throws ApiError 503 */
export async function findUser(
  env: Pick<Env, 'DB'>,
  by: { id: string } | { issuer: string; subject: string },
): Promise<{ account: Account; user: User } | KeyRefusal> {
  const db = database(env);
  const where = 'id' in by ? eq(users.id, by.id) : and(eq(users.issuer, by.issuer), eq(users.subject, by.subject));
  const ofUser = (id: typeof users.projectId | SQL<string>) => db.select({ id }).from(users).where(where);
  const [[user], [project = null], seen, [ofAll], [ofMember], [trace]] = await queryOrUnavailable(
    db.batch([
      db.select().from(users).where(where),
      db
        .select()
        .from(projects)
        .where(inArray(projects.id, ofUser(users.projectId))),
      db.select({ id: max(auditLog.id) }).from(auditLog),
      db.select({ value: settings.value }).from(settings).where(eq(settings.name, USER_LIMITS)),
      db
        .select()
        .from(memberLimits)
        .where(inArray(memberLimits.id, ofUser(memberOfRow(users.projectId, users.id)))),
      db.select({ value: settings.value }).from(settings).where(eq(settings.name, TRACE)),
    ]),
  );
  if (user === undefined) return 'unknown';
  if (user.disabledAt !== null || isClosed(user.projectId, project)) return 'disabled';
  const account = await sealed(env, {
    ...ofKeyAndProject(project),
    ...tracingOf(traceSettingsOf(trace?.value), { keyId: user.id, userId: user.id, project }),
    grantedBy: undefined,
    keyId: user.id,
    role: user.role,
    provider: user.provider ?? undefined,
    userId: user.id,
    groups: user.groups ?? [],
    scopes: undefined,
    limits: limitsOf(project, undefined, user, { ofAll: ofAll?.value, ofMember: ofMember?.limits }),
    expiresAt: undefined,
    seen: seen[0]?.id ?? 0,
  });
  return { account, user };
}

/** Returns the account for a request that its client excludes from the trace. */
export function withoutTrace(env: Pick<Env, 'DB'>, account: Account): Account | Promise<Account> {
  return account.traced ? sealed(env, { ...account, traced: false, prefixes: false }) : account;
}

async function sealed(env: Pick<Env, 'DB'>, account: Omit<Account, 'seal'>): Promise<Account> {
  const { keyId, userId = '', projectId = '', limits, traced, prefixes } = account;
  const counted = countedBy(limits);
  const identity = { keyId, userId, projectId, subject: limits?.subject ?? '', traced, prefixes, counted };
  return { ...account, seal: await sealIdentity(await installationSecret(env), identity) };
}

/**
 * Combines the settings of a key with those of its project. `no_track` and `resume` are on if the key or the project
 * has them.
 */
function ofKeyAndProject(project: Project | null, key?: Key) {
  return {
    projectId: project?.id,
    restrictions: [key, project].flatMap((row) => (row === null || row === undefined ? [] : restrictionsOf(row))),
    mayOptOut: key?.noTrack === true || project?.noTrack === true,
    routing: [key, project].flatMap((row) => (row?.routing ? [row.routing] : [])),
    resumes: key?.resume === true || project?.resume === true,
    startWaitMs: key?.startWaitMs ?? project?.startWaitMs ?? undefined,
  };
}

function isClosed(id: string | null, row: { disabledAt: number | null } | null): boolean {
  return id !== null && (row === null || row.disabledAt !== null);
}

function restrictionsOf(row: Key | Project): Restrictions[] {
  const { models, endpoints, trustedProviders, regions, tiers } = row;
  if ([models, endpoints, trustedProviders, regions, tiers].every((one) => one === null)) return [];
  return [
    {
      models: models ?? undefined,
      endpoints: endpoints ?? undefined,
      trustedProviders: trustedProviders ?? undefined,
      data:
        regions === null && tiers === null ? undefined : { regions: regions ?? undefined, tiers: tiers ?? undefined },
    },
  ];
}

/**
 * Returns the limits of an account. `ofAll`: the setting for users without individual limits. `ofMember`: limits that
 * the project's leads set.
 */
function limitsOf(
  project: Project | null,
  key: Key | undefined,
  user: User | null,
  { ofAll, ofMember = null }: { ofAll: unknown; ofMember: Limits | null | undefined },
): Account['limits'] {
  const [ofKey, ofProject] = [present(key?.limits), present(project?.limits)];
  const limitSources = { ofAll: limitsSchema.safeParse(ofAll).data, ofMember, project: project?.limits ?? null };
  const ofUser = user === null ? undefined : present(personLimits({ ...limitSources, own: user.limits }));
  if (ofKey === undefined && ofProject === undefined && ofUser === undefined) return undefined;
  // A user always has the same limits object, whichever limits exist. So the count of a month continues if limits are
  // added or removed.
  const own = user === null ? `key:${key?.id}` : `user:${user.id}`;
  const subject = project === null ? own : `project:${project.id}`;
  return { subject, key: ofKey, project: ofProject, ...(ofUser && { user: ofUser, userId: user?.id }) };
}

/**
 * Returns whether these limits count usage by user, by model, and as GPU time. A settlement contains user, model or GPU
 * time only if a limit counts it.
 */
function countedBy(limits: AccountLimits | undefined): ReceiptIdentity['counted'] {
  const sets = [limits?.key, limits?.user, limits?.project];
  return {
    user: limits?.user !== undefined,
    model: sets.some((one) => one?.models !== undefined),
    gpu: sets.some((one) => one?.gpu_seconds_per_month !== undefined),
  };
}

/** SQL for the id of a user's limits in a project, from a row with both ids. */
function memberOfRow(project: SQLiteColumn, user: SQLiteColumn): SQL<string> {
  return sql<string>`${project} || '/' || ${user}`;
}

function present(limits: Limits | null | undefined): Limits | undefined {
  return limits && Object.keys(limits).length > 0 ? limits : undefined;
}
