/**
 * `POST /login/device` and `/login/device/token`: the device authorization grant (RFC 8628). Users approve logins in
 * admin/people/device-logins.ts.
 */
import { randomBytes } from 'node:crypto';
import { and, eq, gt, isNull, sql } from 'drizzle-orm';
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { isRecent } from '../../../shared/timing/is-recent.ts';
import type { Env } from '../../env.ts';
import { basePathOf } from '../../http/base-path.ts';
import { readFormFields } from '../../http/parse-body.ts';
import { notifyRegistry } from '../../platform/notify-registry.ts';
import { isLimited } from '../../settings/limits-schema.ts';
import { type AccountScope, apiKeys, auditLog, deviceLogins } from '../account-tables.ts';
import { database, queryOrUnavailable, requireWritable } from '../database.ts';
import { findUser } from '../find-key.ts';
import { readGatewaySettings } from '../gateway-settings.ts';
import { installationSecret } from '../installation-secret.ts';
import { KEY_PREFIX, newId, newSecret, sha256Hex } from '../secrets.ts';
import { isMemberOf, isUnchanged, nameIfBelowLimit } from '../user-keys.ts';
import {
  DEVICE_MS,
  deviceNameSchema,
  formatUserCode,
  INTERVAL_S,
  newUserCode,
  openDevice,
  rememberDevice,
  sealDevice,
} from './device-code.ts';

type DeviceContext = Context<{ Bindings: Env }>;

const DEVICE_GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
/**
 * Scopes of a machine's key if a logged-in user approved it. If a key approved it, the machine's key gets only scopes
 * that the approving key has too.
 */
const SCOPES: readonly AccountScope[] = ['inference', 'registry', 'usage'];
/**
 * How long a machine's key is valid. Many computing centers keep files in the scratch space of login nodes for about as
 * long.
 */
const KEY_MS = 30 * 24 * 60 * 60_000;
/** Maximum polls that this isolate remembers, to detect clients that poll too often. */
const POLLS_MAX = 10_000;
const SOON_MS = (INTERVAL_S - 1) * 1_000;

const startSchema = z.object({ client_id: deviceNameSchema.default('otela') });
const tokenSchema = z.object({ grant_type: z.string().max(100), device_code: z.string().min(1).max(2_048) });

type Row = typeof deviceLogins.$inferSelect;

export const deviceRoutes = new Hono<{ Bindings: Env }>();

deviceRoutes.post('/login/device', async (c) => {
  const now = Date.now();
  const { client_id: name } = await readFormFields(c, startSchema);
  const secret = await installationSecret(c.env);
  const userCode = newUserCode(secret, randomBytes);
  const { publicUrl } = await readGatewaySettings(c.env, now);
  const page = `${(publicUrl ?? new URL(c.req.url).origin + basePathOf(c.req.raw)).replace(/\/$/, '')}/device`;
  rememberDevice(userCode, name, now);
  return c.json(
    {
      device_code: await sealDevice(secret, { userCode, name, until: now + DEVICE_MS }),
      user_code: formatUserCode(userCode),
      verification_uri: page,
      expires_in: DEVICE_MS / 1_000,
      interval: INTERVAL_S,
    },
    200,
    { 'cache-control': 'no-store' },
  );
});

/**
 * The page on which the user types the code. No link fills the code in, because an attacker could send such a link, and
 * a click would approve the attacker's machine (RFC 8628 §5.4).
 */
deviceRoutes.get('/device', (c) => c.redirect(`${basePathOf(c.req.raw)}/#/keys?code=`, 302));

deviceRoutes.post('/login/device/token', async (c) => {
  const now = Date.now();
  const { grant_type: grant, device_code: code } = await readFormFields(c, tokenSchema);
  if (grant !== DEVICE_GRANT) return refused(c, 'unsupported_grant_type');
  const login = await openDevice(await installationSecret(c.env), code, now);
  if (login === undefined) return refused(c, 'expired_token');
  if (isPolledTooSoon(code, now)) return refused(c, 'slow_down');
  requireWritable();
  const cached = answered.get(sha256Hex(code));
  if (cached !== undefined && isRecent(ANSWERED_MS, cached.at, now)) return granted(c, cached.key, now);
  const approval = await approvalOf(c.env, login.userCode, now);
  if (approval === undefined) return refused(c, 'authorization_pending');
  const key = approval.denied ? undefined : await makeKey(c.env, approval, login.name, now);
  // Of two concurrent polls only one gets the key.
  if (key === undefined && (await end(c.env, approval)) === 0) return refused(c, 'authorization_pending');
  if (key === undefined) return refused(c, 'access_denied');
  remember(answered, sha256Hex(code), { at: now, key }, ANSWERED_MAX);
  // The key exists now. The registry learns about the revoked previous key in the background.
  c.executionCtx.waitUntil(notifyRegistry(c.env, (registry) => registry.reloadSettings()).catch(console.error));
  return granted(c, key, now);
});

interface MachineKey {
  plaintext: string;
  expiresAt: number;
}

/** Keys that this isolate returned recently: a machine that lost the response polls again, and gets the same key. */
const answered = new Map<string, { at: number; key: MachineKey }>();
const ANSWERED_MS = 60_000;
const ANSWERED_MAX = 100;

function granted(c: DeviceContext, { plaintext, expiresAt }: MachineKey, now: number): Response {
  const body = { access_token: plaintext, token_type: 'Bearer', expires_in: Math.floor((expiresAt - now) / 1_000) };
  return c.json(body, 200, { 'cache-control': 'no-store', pragma: 'no-cache' });
}

type Refusal = 'unsupported_grant_type' | 'expired_token' | 'slow_down' | 'authorization_pending' | 'access_denied';

/** Returns an error in the form of RFC 6749 §5.2, the only form that OAuth clients read. */
function refused(c: DeviceContext, error: Refusal): Response {
  return c.json({ error }, 400, { 'cache-control': 'no-store' });
}

/** Time of the last poll by the hash of the device code, oldest first. */
const polls = new Map<string, number>();

function isPolledTooSoon(code: string, now: number): boolean {
  const name = sha256Hex(code);
  const before = polls.get(name);
  if (before !== undefined && now >= before && now - before < SOON_MS) return true;
  remember(polls, name, now, POLLS_MAX);
  return false;
}

/** Adds an entry. If the map has `most` entries, the oldest one is dropped. */
function remember<T>(map: Map<string, T>, name: string, value: T, most: number): void {
  map.delete(name);
  map.set(name, value);
  const oldest = map.size > most ? map.keys().next().value : undefined;
  if (oldest !== undefined) map.delete(oldest);
}

async function approvalOf(env: Env, userCode: string, now: number): Promise<Row | undefined> {
  const mine = and(eq(deviceLogins.hash, sha256Hex(userCode)), gt(deviceLogins.expiresAt, now));
  const [row] = await queryOrUnavailable(database(env).select().from(deviceLogins).where(mine));
  return row;
}

/** Deletes an approval. @returns the number of deleted rows */
async function end(env: Env, { hash }: Row): Promise<number> {
  return (await queryOrUnavailable(database(env).delete(deviceLogins).where(eq(deviceLogins.hash, hash)).returning()))
    .length;
}

/**
 * Creates the machine's key and deletes the approval in one transaction. If the transaction fails, nothing has changed,
 * and the next poll repeats it. Returns undefined if another poll got the key, or if the approving user or key may no
 * longer create a key: it has ended or now has limits, the user has left the project, or the user has too many keys.
 */
async function makeKey(
  env: Env,
  { hash: approval, userId, projectId, approvedBy }: Row,
  machine: string,
  now: number,
): Promise<MachineKey | undefined> {
  const db = database(env);
  const person = await findUser(env, { id: userId });
  if (typeof person !== 'object') return undefined;
  const [parent] =
    approvedBy === null ? [] : await queryOrUnavailable(db.select().from(apiKeys).where(eq(apiKeys.id, approvedBy)));
  if (approvedBy !== null && (parent === undefined || parent.revokedAt !== null)) return undefined;
  if (parent !== undefined && isLimited(parent)) return undefined;
  const expiresAt = Math.min(now + KEY_MS, parent?.expiresAt ?? Number.POSITIVE_INFINITY);
  if (expiresAt <= now) return undefined;
  const scopes = SCOPES.filter((scope) => parent?.scopes?.includes(scope) ?? true);
  if (scopes.length === 0) return undefined;
  const { plaintext, hash, prefix } = newSecret(KEY_PREFIX);
  const name = `otela login on ${machine}`;
  const row: typeof apiKeys.$inferInsert = {
    ...(parent && restrictionsOf(parent)),
    id: newId('key'),
    hash,
    prefix,
    name,
    role: 'consumer',
    userId,
    projectId,
    scopes,
    grantedBy: approvedBy,
    createdAt: now,
    expiresAt,
  };
  // A new login on a machine replaces the key of its previous login.
  const former = and(
    eq(apiKeys.userId, userId),
    eq(apiKeys.name, name),
    isNull(apiKeys.revokedAt),
    gt(apiKeys.expiresAt, now),
  );
  const before = await queryOrUnavailable(db.select({ id: apiKeys.id }).from(apiKeys).where(former));
  const line = (action: string, object: string) =>
    db.insert(auditLog).values({ at: now, actor: userId, action, object, after: { name, project_id: projectId } });
  // The statement itself checks this, because another request may revoke the approving key, or remove the user from the
  // project, at this moment.
  const may =
    parent !== undefined ? isUnchanged(parent) : projectId === null ? sql`true` : isMemberOf(userId, projectId);
  const approved = eq(deviceLogins.hash, approval);
  const stands = sql`EXISTS (SELECT 1 FROM ${deviceLogins} WHERE ${approved} AND NOT ${deviceLogins.denied})`;
  const named = nameIfBelowLimit(sql<string>`CASE WHEN ${stands} AND ${may} THEN ${name} END`, userId, now);
  const made = db.insert(apiKeys).values({ ...row, name: named });
  const replaced = before.flatMap(({ id }) => [
    db.update(apiKeys).set({ revokedAt: now }).where(eq(apiKeys.id, id)),
    line('key.revoke', id),
  ]);
  try {
    await queryOrUnavailable(
      db.batch([made, db.delete(deviceLogins).where(approved), ...replaced, line('key.create', row.id)]),
    );
  } catch (error) {
    if (isRefusedName(error)) return undefined;
    throw error;
  }
  return { plaintext, expiresAt };
}

/**
 * True if the statement failed because the key's name was NULL. nameIfBelowLimit and similar checks return NULL to
 * refuse the key.
 */
function isRefusedName(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause)
    if (/NOT NULL constraint failed: api_keys\.name/.test(at.message)) return true;
  return false;
}

/** Returns the restrictions of the approving key, which also apply to the new key. */
function restrictionsOf({ models, endpoints, trustedProviders, regions, tiers }: typeof apiKeys.$inferSelect) {
  return { models, endpoints, trustedProviders, regions, tiers };
}
