/**
 * `/v1/otela/conversations`: the conversations of a person's chats, encrypted by the browser. Only the person reads and
 * changes them, and only if the operator gives space for them (`conversations_mib`).
 */

import { and, eq, isNull } from 'drizzle-orm';
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { requireScope } from '../accounts/account.ts';
import { users } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable, requireWritable } from '../accounts/database.ts';
import { readSetting } from '../accounts/read-setting.ts';
import type { Env } from '../env.ts';
import { parseWithSchema, readParsedBody } from '../http/parse-body.ts';
import { readBodyBytes } from '../http/read-body.ts';
import type { ObjectStub } from '../platform/object-context.ts';
import { authorizedModels } from '../registry/authorize-registry-read.ts';
import { conversationsMibSchema } from '../settings/conversation-settings.ts';
import { BOX_MAX_BYTES, type ConversationsObject } from './conversations-object.ts';

type Ctx = Context<{ Bindings: Env }>;

const MIB = 1024 * 1024;
const ID = /^[\w-]{1,64}$/;
/** Bytes in base64: the salt of the key, and a text that only the right key opens. */
const base64 = z.string().regex(/^[\w+/=-]{1,256}$/, 'must be base64');
const keySchema = z.strictObject({ salt: base64, check: base64 });
/** A share ends after this time, because owners forget links. */
const SHARE_DAYS = { usual: 30, most: 365 };
const daysSchema = z.object({ days: z.coerce.number().int().min(1).max(SHARE_DAYS.most).default(SHARE_DAYS.usual) });
const DAY_MS = 24 * 60 * 60_000;
const isoTime = (ms: number) => new Date(ms).toISOString();
const afterSchema = z.object({ after: z.coerce.number().int().min(0).default(0) });

export const conversationRoutes = new Hono<{ Bindings: Env }>();

conversationRoutes.get('/', async (c) => {
  const { kept, maxBytes } = await callerOf(c);
  const { after } = parseWithSchema({ after: c.req.query('after') }, afterSchema);
  const { key, revision, conversations, bytes } = await kept.list(after);
  const answer = { object: 'list', key: key === null ? null : keySchema.parse(JSON.parse(key)), revision };
  return c.json({ ...answer, data: conversations, bytes, max_bytes: maxBytes }, 200, NOT_STORED);
});

conversationRoutes.put('/key', async (c) => {
  const { kept } = await callerOf(c, 'write');
  const key = await readParsedBody(c, keySchema);
  if (!(await kept.begin(JSON.stringify(key)))) throw new ApiError('conflict', 'You keep conversations here already.');
  return c.json({ object: 'otela.conversation_key', ...key });
});

// An id of a conversation is never `shares`: a browser makes it of random letters.
conversationRoutes.get('/shares', async (c) => {
  const { kept } = await callerOf(c, 'list');
  const data = (await kept.shares()).map(({ id, bytes, expiresAt }) => ({ id, bytes, expires_at: isoTime(expiresAt) }));
  return c.json({ object: 'list', data }, 200, NOT_STORED);
});

conversationRoutes.put('/shares/:id', async (c) => {
  const { kept, maxBytes, owner } = await callerOf(c, 'write');
  const id = idOf(c);
  const { days } = parseWithSchema({ days: c.req.query('days') }, daysSchema);
  const box = await readBodyBytes(c, BOX_MAX_BYTES);
  if (box.length === 0) throw new ApiError('invalid_request', 'The body is empty.');
  const expiresAt = Date.now() + days * DAY_MS;
  const done = await kept.share(id, box, expiresAt, maxBytes);
  if (done === 'conflict') throw new ApiError('conflict', `The share '${id}' exists already.`);
  if (done === 'full')
    throw new ApiError('insufficient_quota', 'There is no more space for your conversations. Delete some of them.');
  return c.json({ id, owner, expires_at: isoTime(expiresAt) }, 200, NOT_STORED);
});

conversationRoutes.delete('/shares/:id', async (c) => {
  const { kept } = await callerOf(c, 'delete');
  if (!(await kept.unshare(idOf(c)))) throw missing(c);
  return c.json({ id: idOf(c), deleted: true });
});

/** Each account here may read the box if it knows the ids of the link. Only the link has the key. */
conversationRoutes.get('/shares/:owner/:id', async (c) => {
  await callerOf(c, 'read');
  const owner = c.req.param('owner');
  // An object of an unknown name would be made by reading it.
  const box = (await isPerson(c.env, owner))
    ? await c.env.CONVERSATIONS.getByName(owner).readShare(idOf(c))
    : undefined;
  if (box === undefined) throw new ApiError('not_found', 'This link has ended, or was deleted.', { param: 'id' });
  const headers = { 'content-type': 'application/octet-stream', ...NOT_STORED };
  return new Response(box as Uint8Array<ArrayBuffer>, { headers });
});

conversationRoutes.get('/:id', async (c) => {
  const { kept } = await callerOf(c);
  const found = await kept.read(idOf(c));
  if (found === undefined) throw missing(c);
  const headers = { 'content-type': 'application/octet-stream', etag: `"${found.revision}"`, ...NOT_STORED };
  return new Response(found.box as Uint8Array<ArrayBuffer>, { headers });
});

conversationRoutes.put('/:id', async (c) => {
  const { kept, maxBytes } = await callerOf(c, 'write');
  const id = idOf(c);
  const box = await readBodyBytes(c, BOX_MAX_BYTES);
  if (box.length === 0) throw new ApiError('invalid_request', 'The body is empty.');
  const written = await kept.write(id, baseOf(c), box, maxBytes);
  if (written === 'conflict') throw new ApiError('conflict', `The conversation '${id}' was changed elsewhere.`);
  if (written === 'full')
    throw new ApiError('insufficient_quota', 'There is no more space for your conversations. Delete some of them.');
  return c.json({ id, revision: written.revision }, 200, NOT_STORED);
});

conversationRoutes.delete('/:id', async (c) => {
  const { kept } = await callerOf(c, 'write');
  const revision = await kept.remove(idOf(c));
  if (revision === undefined) throw missing(c);
  return c.json({ id: idOf(c), revision, deleted: true });
});

conversationRoutes.delete('/', async (c) => {
  const { kept } = await callerOf(c, 'delete');
  await kept.clear();
  return c.json({ object: 'list', deleted: true });
});

/** Space for the conversations of each person; 0: none. @throws ApiError 503 */
export async function conversationsMib(env: Pick<Env, 'DB'>): Promise<number> {
  return (await readSetting(env, 'conversations_mib', conversationsMibSchema)) ?? 0;
}

const NOT_STORED = { 'cache-control': 'no-store' };

/** True if a person with this id may log in. @throws ApiError 503 */
async function isPerson(env: Pick<Env, 'DB'>, id: string): Promise<boolean> {
  const query = database(env)
    .select({ id: users.id })
    .from(users)
    .where(and(eq(users.id, id), isNull(users.disabledAt)));
  return (await queryOrUnavailable(query)).length > 0;
}

interface Caller {
  /** The id of the person. */
  owner: string;
  kept: ObjectStub<ConversationsObject>;
  maxBytes: number;
}

/**
 * Authenticates the person. Listing shares and deleting also work without space: conversations must not be stuck because the
 * operator took the space away.
 * @throws ApiError 401; 403 for a key without a user; 404 if there is no space for conversations
 */
async function callerOf(c: Ctx, purpose: 'read' | 'list' | 'write' | 'delete' = 'read'): Promise<Caller> {
  const { account } = await authorizedModels(c);
  requireScope(account, 'inference');
  if (purpose === 'write' || purpose === 'delete') requireWritable();
  if (account.userId === undefined) throw new ApiError('permission_denied', 'Only people keep conversations.');
  const mib = await conversationsMib(c.env);
  if (mib === 0 && (purpose === 'read' || purpose === 'write'))
    throw new ApiError('not_found', 'This gateway keeps no conversations.');
  return { owner: account.userId, kept: c.env.CONVERSATIONS.getByName(account.userId), maxBytes: mib * MIB };
}

/** @throws ApiError 400 */
function idOf(c: Ctx): string {
  const id = c.req.param('id') ?? '';
  if (ID.test(id)) return id;
  throw new ApiError('invalid_request', 'The id has other characters than letters, digits, _ and -.', { param: 'id' });
}

/** The revision of `if-match`; 0 without it. @throws ApiError 400 */
function baseOf(c: Ctx): number {
  const given = c.req.header('if-match');
  if (given === undefined) return 0;
  const [, revision] = /^"(\d{1,15})"$/.exec(given) ?? [];
  if (revision === undefined) throw new ApiError('invalid_request', 'if-match is not a revision.');
  return Number(revision);
}

function missing(c: Ctx): ApiError {
  return new ApiError('not_found', `There is no conversation '${idOf(c)}'.`, { param: 'id' });
}
