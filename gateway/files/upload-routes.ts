/** OpenAI's `/v1/uploads`: a file is sent in parts, for proxies and platforms that accept no large body. */
import { createHash, type Hash, randomBytes } from 'node:crypto';
import { and, eq, inArray, sql } from 'drizzle-orm';
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { INPUT_MAX_BYTES } from '../../shared/batch/batch-input-check.ts';
import type { Json } from '../../shared/batch/batch-line.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { database, queryOrUnavailable, requireWritable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { readParsedBody } from '../http/parse-body.ts';
import { startTimer } from '../platform/start-timer.ts';
import { fileBytesInFlight, formByteRange, partBytesInFlight } from './bytes-in-flight.ts';
import { fileCaller } from './file-owner.ts';
import {
  bytesIfBelowQuota,
  bytesIfUploadOpen,
  PARTS_MAX,
  requireFileCount,
  requireFileQuota,
  requireUploadSpace,
} from './file-quota.ts';
import type { FileStore } from './file-store.ts';
import { files, uploadParts, uploads } from './file-tables.ts';
import { readMultipartForm } from './multipart.ts';
import {
  BATCH_FILE_MS,
  FILE_MAX_BYTES,
  type FileObject,
  type FileRow,
  fileObject,
  newFileId,
  PURPOSES,
} from './openai-file.ts';
import { storeOf, withStoreErrors } from './store-access.ts';
import { wakeSweep } from './sweep-object.ts';

type Ctx = Context<{ Bindings: Env }>;
type UploadRow = typeof uploads.$inferSelect;
type PartRow = typeof uploadParts.$inferSelect;

/** Maximum bytes of a part. OpenAI documents 64 MB; its SDKs send 64 MiB. */
const PART_MAX_BYTES = 64 * 1024 * 1024;
const LIFE_MS = 3_600_000;
/**
 * Interval at which a request checks whether another upload of the owner is still being joined. In a Worker, a request
 * cannot await a promise of another request.
 */
const JOIN_POLL_MS = 200;

export const uploadRoutes = new Hono<{ Bindings: Env }>();

uploadRoutes.post('/', async (c) => {
  const caller = await fileCaller(c);
  const { account, owner } = caller;
  requireWritable();
  storeOf(c.env);
  const { filename, purpose, bytes } = declared(await readParsedBody(c, z.looseObject({})));
  const now = Date.now();
  const row: UploadRow = {
    id: `upload_${randomBytes(12).toString('hex')}`,
    owner,
    createdBy: account.keyId,
    purpose,
    filename,
    bytes,
    status: 'pending',
    fileId: null,
    createdAt: now,
    expiresAt: now + LIFE_MS,
  };
  await requireFileQuota(c.env, caller, bytes, now);
  try {
    await queryOrUnavailable(
      database(c.env)
        .insert(uploads)
        .values({ ...row, bytes: bytesIfBelowQuota(c.env, caller, bytes, now) }),
    );
  } catch (error) {
    await requireFileQuota(c.env, caller, bytes, now);
    throw error;
  }
  c.executionCtx.waitUntil(wakeSweep(c.env));
  return c.json(uploadObject(row));
});

uploadRoutes.post('/:id/parts', async (c) => {
  const caller = await fileCaller(c);
  const upload = await pendingOf(c);
  await requireFileCount(c.env, caller, Date.now());
  const store = storeOf(c.env);
  const room = await requireUploadSpace(c.env, upload, 1, Date.now());
  const taken = formByteRange(c.req.raw, PART_MAX_BYTES, room);
  const end = partBytesInFlight.take(upload.id, taken.least, Date.now());
  const fileId = newFileId();
  const put = (content: AsyncIterable<Uint8Array>) => store.put(fileId, content, taken.most);
  const { stored } = await withStoreErrors(() => readMultipartForm(c, put, 'data'))
    .catch(async (error: unknown) => {
      await store.delete(fileId).catch(() => {}); // the form may have ended early, after its part was stored
      throw error;
    })
    .finally(end);
  const part: PartRow = {
    id: `part_${randomBytes(12).toString('hex')}`,
    uploadId: upload.id,
    fileId,
    bytes: stored.bytes,
    createdAt: Date.now(),
  };
  const row = { ...part, bytes: bytesIfUploadOpen(c.env, upload.id, caller, part.bytes, part.createdAt) };
  try {
    await whilePending(c, () => queryOrUnavailable(database(c.env).insert(uploadParts).values(row)));
  } catch (error) {
    await store.delete(fileId).catch(() => {});
    await requireUploadSpace(c.env, upload, part.bytes, Date.now());
    await requireFileCount(c.env, caller, Date.now());
    throw error;
  }
  const created_at = Math.floor(part.createdAt / 1_000);
  return c.json({ id: part.id, object: 'upload.part', created_at, upload_id: upload.id });
});

uploadRoutes.post('/:id/complete', async (c) => {
  const { owner, bytes } = await pendingOf(c);
  const completion = completionOf(await readParsedBody(c, z.looseObject({})));
  while (fileBytesInFlight.of(joining(owner), Date.now()) > 0) await pause(JOIN_POLL_MS);
  // While an upload is joined, its bytes are stored twice, so only one upload per owner is joined at a time.
  const end = fileBytesInFlight.take(joining(owner), bytes, Date.now());
  try {
    return await complete(c, completion);
  } finally {
    end();
  }
});

const joining = (owner: string) => `join ${owner}`;
const pause = (ms: number) => new Promise<void>((resolve) => void startTimer(ms, resolve));

async function complete(c: Ctx, { ids, md5 }: { ids: string[]; md5: string | undefined }): Promise<Response> {
  const upload = await pendingOf(c);
  const db = database(c.env);
  const store = storeOf(c.env);
  const found = await queryOrUnavailable(db.select().from(uploadParts).where(eq(uploadParts.uploadId, upload.id)));
  const byId = new Map(found.map((part) => [part.id, part]));
  const parts = ids.map((id) => byId.get(id));
  if (parts.some((part) => part === undefined))
    throw new ApiError('invalid_request', "'part_ids' names a part that this upload does not have.", {
      param: 'part_ids',
    });
  const inOrder = parts.filter((part) => part !== undefined);
  const bytes = inOrder.reduce((sum, part) => sum + part.bytes, 0);
  if (bytes !== upload.bytes)
    throw new ApiError('invalid_request', `The parts have ${bytes} bytes, but ${upload.bytes} were declared.`, {
      param: 'part_ids',
    });
  const now = Date.now();
  const file: FileRow = {
    id: newFileId(),
    owner: upload.owner,
    createdBy: upload.createdBy,
    purpose: upload.purpose,
    filename: upload.filename,
    bytes,
    createdAt: now,
    expiresAt: upload.purpose === 'batch' ? now + BATCH_FILE_MS : null,
  };
  const hash = createHash('md5');
  await whilePending(c, () => withStoreErrors(() => store.put(file.id, joined(store, inOrder, hash), FILE_MAX_BYTES)));
  if (md5 !== undefined && md5 !== hash.digest('hex')) {
    await store.delete(file.id).catch(() => {});
    throw new ApiError('invalid_request', "The MD5 of the parts differs from 'md5'.", { param: 'md5' });
  }
  const done: UploadRow = { ...upload, status: 'completed', fileId: file.id };
  // The status is NULL, which the table refuses, if another request has completed or canceled the upload meanwhile.
  const status = db.select({ status: uploads.status }).from(uploads).where(eq(uploads.id, upload.id));
  const ownerWhilePending = sql<string>`CASE WHEN (${status}) = 'pending' THEN ${file.owner} END`;
  try {
    await whilePending(c, () =>
      queryOrUnavailable(
        db.batch([
          db.insert(files).values({ ...file, owner: ownerWhilePending }),
          db.update(uploads).set(done).where(eq(uploads.id, upload.id)),
        ]),
      ),
    );
  } catch (error) {
    await store.delete(file.id).catch(() => {});
    throw error;
  }
  c.executionCtx.waitUntil(forget(c.env, async () => found));
  return c.json(uploadObject(done, fileObject(file)));
}

uploadRoutes.post('/:id/cancel', async (c) => {
  const upload = await pendingOf(c);
  const db = database(c.env);
  const cancelled: UploadRow = { ...upload, status: 'cancelled' };
  const [ended] = await queryOrUnavailable(
    db
      .update(uploads)
      .set(cancelled)
      .where(and(eq(uploads.id, upload.id), eq(uploads.status, 'pending')))
      .returning(),
  );
  if (ended === undefined) await pendingOf(c);
  const partsOf = db.select().from(uploadParts).where(eq(uploadParts.uploadId, upload.id));
  c.executionCtx.waitUntil(forget(c.env, async () => partsOf));
  return c.json(uploadObject(cancelled));
});

/** Returns the upload if it is pending. @throws ApiError 404; 409 if the upload has ended */
async function pendingOf(c: Ctx): Promise<UploadRow> {
  const { owner } = await fileCaller(c);
  requireWritable();
  const id = c.req.param('id') ?? '';
  const [row] = await queryOrUnavailable(
    database(c.env)
      .select()
      .from(uploads)
      .where(and(eq(uploads.id, id), eq(uploads.owner, owner))),
  );
  if (row === undefined)
    throw new ApiError('not_found', `No upload found with id '${id.slice(0, 64)}'.`, { param: 'id' });
  const status = row.status === 'pending' && row.expiresAt <= Date.now() ? 'expired' : row.status;
  if (status !== 'pending') throw new ApiError('conflict', `This upload is ${status}.`);
  return row;
}

/** Calls `act`. @throws ApiError 409 if `act` failed because another request has ended the upload meanwhile */
async function whilePending<T>(c: Ctx, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    await pendingOf(c);
    throw error;
  }
}

async function* joined(store: FileStore, parts: readonly PartRow[], hash: Hash): AsyncGenerator<Uint8Array> {
  for (const part of parts) {
    const content = await store.read(part.fileId);
    if (content === undefined) throw new Error(`a part of an upload was deleted: ${part.id}`);
    for await (const piece of content) {
      hash.update(piece);
      yield piece;
    }
  }
}

/** Deletes the parts of an upload that has ended. Never rejects: the sweep deletes the rest. */
async function forget(env: Env, find: () => Promise<readonly PartRow[]>): Promise<void> {
  try {
    await forgetParts(env, await find());
  } catch (error) {
    console.error(`the parts of an upload stay until the next sweep: ${errorText(error)}`);
  }
}

async function forgetParts(env: Env, parts: readonly PartRow[]): Promise<void> {
  const store = storeOf(env);
  const ids: string[] = [];
  // A row is deleted only after its bytes, because the sweep finds the bytes by the row.
  for (const { id, fileId } of parts)
    await store.delete(fileId).then(
      () => ids.push(id),
      () => {},
    );
  // D1 binds at most 100 values, so ids are sent in groups.
  for (let at = 0; at < ids.length; at += 90)
    await queryOrUnavailable(
      database(env)
        .delete(uploadParts)
        .where(inArray(uploadParts.id, ids.slice(at, at + 90))),
    );
}

function uploadObject(row: UploadRow, file: FileObject | null = null) {
  return {
    id: row.id,
    object: 'upload' as const,
    bytes: row.bytes,
    created_at: Math.floor(row.createdAt / 1_000),
    expires_at: Math.floor(row.expiresAt / 1_000),
    filename: row.filename,
    purpose: row.purpose,
    status: row.status,
    file,
  };
}

/** @throws ApiError 400, 413 */
function declared({ filename, purpose, bytes }: Json) {
  if (typeof filename !== 'string' || filename === '' || filename.length > 255)
    throw new ApiError('invalid_request', "'filename' must have 1 to 255 characters.", { param: 'filename' });
  if (!PURPOSES.some((one) => one === purpose))
    throw new ApiError('invalid_request', `'purpose' must be one of ${PURPOSES.join(', ')}.`, { param: 'purpose' });
  if (typeof bytes !== 'number' || !Number.isInteger(bytes) || bytes < 1)
    throw new ApiError('invalid_request', "'bytes' must be a positive integer.", { param: 'bytes' });
  const most = purpose === 'batch' ? INPUT_MAX_BYTES : FILE_MAX_BYTES;
  if (bytes > most)
    throw new ApiError('request_too_large', `A file with this purpose must have at most ${most} bytes.`, {
      param: 'bytes',
    });
  return { filename, purpose: String(purpose), bytes };
}

/** @throws ApiError 400 */
function completionOf({ part_ids: ids, md5 }: Json): { ids: string[]; md5: string | undefined } {
  if (!Array.isArray(ids) || ids.length === 0 || ids.length > PARTS_MAX || !ids.every((id) => typeof id === 'string'))
    throw new ApiError('invalid_request', "'part_ids' must be a list of ids.", { param: 'part_ids' });
  if (new Set(ids).size < ids.length)
    throw new ApiError('invalid_request', "'part_ids' names a part twice.", { param: 'part_ids' });
  if (md5 === undefined || md5 === null) return { ids, md5: undefined };
  if (typeof md5 !== 'string' || !/^[0-9a-f]{32}$/i.test(md5))
    throw new ApiError('invalid_request', "'md5' must be 32 hexadecimal digits.", { param: 'md5' });
  return { ids, md5: md5.toLowerCase() };
}
