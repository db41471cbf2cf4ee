/**
 * `/v1/otela/conversations`: the conversations of a person's chats, encrypted by the browser. Only the person reads and
 * changes them, and only if the operator gives space for them (`conversations_mib`).
 */
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { requireScope } from '../accounts/account.ts';
import { requireWritable } from '../accounts/database.ts';
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

interface Caller {
  kept: ObjectStub<ConversationsObject>;
  maxBytes: number;
}

/**
 * Authenticates the person. Deleting everything also works without space: conversations must not be stuck because the
 * operator took the space away.
 * @throws ApiError 401; 403 for a key without a user; 404 if there is no space for conversations
 */
async function callerOf(c: Ctx, purpose: 'read' | 'write' | 'delete' = 'read'): Promise<Caller> {
  const { account } = await authorizedModels(c);
  requireScope(account, 'inference');
  if (purpose !== 'read') requireWritable();
  if (account.userId === undefined) throw new ApiError('permission_denied', 'Only people keep conversations.');
  const mib = await conversationsMib(c.env);
  if (mib === 0 && purpose !== 'delete') throw new ApiError('not_found', 'This gateway keeps no conversations.');
  return { kept: c.env.CONVERSATIONS.getByName(account.userId), maxBytes: mib * MIB };
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
