/**
 * Changes by administrators. Each change is one batch in D1 together with its line in the audit log, followed by a
 * notice to the registry.
 */
import { and, eq, lt } from 'drizzle-orm';
import type { BatchItem } from 'drizzle-orm/batch';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { auditLog, idempotency } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable, requireWritable } from '../accounts/database.ts';
import { sha256Hex } from '../accounts/secrets.ts';
import type { Env } from '../env.ts';
import { notifyRegistry } from '../platform/notify-registry.ts';
import type { AdminCall } from './admin-route.ts';

type AnyCall = AdminCall<unknown, unknown>;

interface AuditedChange {
  /** What is done, for example `key.create`. */
  action: string;
  /** Id of the changed object. */
  object: string;
  /** The object before the change, as users see it: without hash and secret. */
  before?: unknown;
  after?: unknown;
}

/** Runs `statements` and writes the audit log in one transaction, then notifies every isolate. */
export async function applyChange(
  call: AnyCall,
  statements: BatchItem<'sqlite'>[],
  what: AuditedChange,
): Promise<void> {
  requireWritable();
  // The line is in the same transaction as the change, because its number decides which accounts are stale.
  await queryOrUnavailable(database(call.env).batch(nonEmpty([...statements, auditLine(call, what)])));
  await notifyIsolates(call.env);
}

type Statements = [BatchItem<'sqlite'>, ...BatchItem<'sqlite'>[]];

function nonEmpty(statements: BatchItem<'sqlite'>[]): Statements {
  return statements as Statements;
}

/**
 * Notifies all isolates of changed settings. Also called if a request is repeated, because the earlier request may have
 * stored the change without notifying the registry.
 */
export async function notifyIsolates(env: Env): Promise<void> {
  await notifyRegistry(env, (registry) => registry.reloadSettings());
}

/** For an action outside D1: writes the line of the audit log before the action, so that every action has a line. */
export async function recordIntent(call: AnyCall, what: AuditedChange): Promise<void> {
  requireWritable();
  await queryOrUnavailable(auditLine(call, what));
}

function auditLine(call: AnyCall, { action, object, before = null, after = null }: AuditedChange) {
  const row = { at: call.now, actor: call.actor, action, object, before, after };
  return database(call.env).insert(auditLog).values(row);
}

/** How long a request with an idempotency key can be repeated with the same result. */
const IDEMPOTENT_MS = 24 * 60 * 60_000;
/**
 * Allowed idempotency keys: at most 255 characters, like Stripe's, and only characters that a header may have (RFC 9110
 * §5.5). White space around the value is ignored, and an empty value counts as no key.
 */
export const IDEMPOTENCY_KEY = /^[\t\x20-\x7e]{0,255}$/;

interface Creation extends AuditedChange {
  statements: BatchItem<'sqlite'>[];
  /** The response: the created object with its secret. */
  shown: object;
  /** Status of the response. */
  status?: 200 | 201;
  /**
   * Refuses an object that may not be created now. Not called if this idempotency key has already created its object;
   * called again if `statements` fail.
   * @throws ApiError
   */
  check?(): Promise<void>;
  /** Returns the object with an id, without its secret. This is the response to a repeated request. */
  find(id: string): Promise<object | undefined>;
}

/**
 * Creates an object once: with an `idempotency-key`, a second request gets the object that the first one created,
 * without its secret.
 * @throws ApiError 422 if the idempotency key was used for a different request
 */
export async function createOnce(call: AnyCall, creation: Creation): Promise<Response> {
  const db = database(call.env);
  const key = call.c.req.header('idempotency-key') || undefined;
  const once: BatchItem<'sqlite'>[] = [];
  const request = sha256Hex(`${call.c.req.path}\n${JSON.stringify(call.body)}`);
  if (key !== undefined) {
    if (!IDEMPOTENCY_KEY.test(key))
      throw new ApiError('invalid_request', 'idempotency-key: at most 255 printable ASCII characters.');
    const replayed = await replay(call, key, request, creation);
    if (replayed !== undefined) return replayed;
    once.push(
      db.delete(idempotency).where(lt(idempotency.createdAt, call.now - IDEMPOTENT_MS)),
      db.insert(idempotency).values({ actor: call.actor, key, request, object: creation.object, createdAt: call.now }),
    );
  }
  requireWritable();
  await creation.check?.();
  try {
    await queryOrUnavailable(db.batch(nonEmpty([...once, ...creation.statements, auditLine(call, creation)])));
  } catch (error) {
    // The idempotency key is in use: a concurrent request with the same key was first.
    const again = key === undefined ? undefined : await replay(call, key, request, creation);
    if (again !== undefined) return again;
    await creation.check?.();
    throw isTaken(error) ? new ApiError('unprocessable_content', `"${creation.object}" already exists.`) : error;
  }
  await notifyIsolates(call.env);
  return call.c.json(creation.shown, creation.status ?? 201, { 'cache-control': 'no-store' });
}

async function replay(call: AnyCall, key: string, request: string, { find }: Creation): Promise<Response | undefined> {
  const [known] = await queryOrUnavailable(
    database(call.env)
      .select()
      .from(idempotency)
      .where(and(eq(idempotency.actor, call.actor), eq(idempotency.key, key))),
  );
  if (known === undefined || known.createdAt <= call.now - IDEMPOTENT_MS) return undefined;
  if (known.request !== request) {
    throw new ApiError('unprocessable_content', 'This idempotency-key was already used for a different request.');
  }
  const found = await find(known.object);
  if (found === undefined) return undefined;
  await notifyIsolates(call.env);
  return call.c.json(found, 200, { 'cache-control': 'no-store', 'idempotent-replayed': 'true' });
}

function isTaken(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  const words = [cause, cause instanceof Error ? cause.cause : undefined].map(String).join('\n');
  return words.includes('UNIQUE constraint failed');
}
