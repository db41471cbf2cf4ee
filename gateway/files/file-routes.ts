/** Routes of OpenAI's `/v1/files`. */
import { and, eq, gt, isNull, or, sql } from 'drizzle-orm';
import { Hono } from 'hono';
import { INPUT_MAX_BYTES } from '../../shared/batch/batch-input-check.ts';
import { JsonlSniffer } from '../../shared/batch/jsonl-sniffer.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { database, queryOrUnavailable, requireWritable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { rangeOf } from './byte-range.ts';
import { fileBytesInFlight, formByteRange } from './bytes-in-flight.ts';
import { deleteFileRows, positionOf } from './deleted-file-positions.ts';
import { type FileCaller, fileCaller } from './file-owner.ts';
import { listEnvelope, pageOrder, readFilePage } from './file-pages.ts';
import { bytesIfBelowQuota, requireFileQuota } from './file-quota.ts';
import { batches, files } from './file-tables.ts';
import { readMultipartForm } from './multipart.ts';
import { BATCH_FILE_MS, FILE_MAX_BYTES, type FileRow, fileObject, newFileId, PURPOSES } from './openai-file.ts';
import { storeOf, toReadableStream, withStoreErrors } from './store-access.ts';
import { wakeSweep } from './sweep-object.ts';

const EXPIRES_S = { least: 3_600, most: 2_592_000 };
const FILENAME_MAX = 255;

export const fileRoutes = new Hono<{ Bindings: Env }>();

fileRoutes.post('/', async (c) => {
  const caller = await fileCaller(c);
  const { account, owner } = caller;
  requireWritable();
  const store = storeOf(c.env);
  const room = await requireFileQuota(c.env, caller, 1, Date.now());
  const taken = formByteRange(c.req.raw, FILE_MAX_BYTES, room);
  const end = fileBytesInFlight.take(owner, taken.least, Date.now());
  const id = newFileId();
  const sniffer = new JsonlSniffer();
  try {
    const { fields, filename, stored } = await withStoreErrors(() =>
      readMultipartForm(c, (content) => store.put(id, sniffed(content, sniffer), taken.most)),
    ).finally(end);
    const isJsonl = sniffer.end();
    const { purpose, expiresAt } = checkedFields(fields, stored.bytes, Date.now());
    if (purpose === 'batch' && !isJsonl)
      throw new ApiError('invalid_request', 'Invalid file format for Batch API. Must be .jsonl', { param: 'file' });
    const row: FileRow = {
      id,
      owner,
      createdBy: account.keyId,
      purpose,
      filename: filename.slice(0, FILENAME_MAX),
      bytes: stored.bytes,
      createdAt: Date.now(),
      expiresAt,
    };
    await inserted(c.env, row, caller);
    c.executionCtx.waitUntil(wakeSweep(c.env));
    return c.json(fileObject(row));
  } catch (error) {
    // The store may already have the whole file, for example if the form ended early after the file. Without a row, the
    // file would count against no quota, so it is deleted.
    await store.delete(id).catch(() => {});
    throw error;
  }
});

fileRoutes.get('/', async (c) => {
  const { owner } = await fileCaller(c);
  const { limit, after, ascending } = readFilePage((name) => c.req.query(name), { limit: 10_000, most: 10_000 });
  const db = database(c.env);
  const from = after === undefined ? undefined : await positionOf(c.env, owner, after);
  if (after !== undefined && from === undefined) throw noFile(after);
  const purpose = c.req.query('purpose');
  const { behind, order } = pageOrder(files, ascending, from);
  const rows = await queryOrUnavailable(
    db
      .select()
      .from(files)
      .where(
        and(
          eq(files.owner, owner),
          purpose === undefined ? undefined : eq(files.purpose, purpose),
          alive(Date.now()),
          behind,
        ),
      )
      .orderBy(...order)
      .limit(limit + 1),
  );
  return c.json(listEnvelope(rows.map(fileObject), limit));
});

fileRoutes.get('/:id', async (c) => {
  const { owner } = await fileCaller(c);
  return c.json(fileObject(await fileOf(c.env, owner, c.req.param('id'))));
});

fileRoutes.delete('/:id', async (c) => {
  const { owner } = await fileCaller(c);
  requireWritable();
  const { id } = await fileOf(c.env, owner, c.req.param('id'));
  const users = await queryOrUnavailable(
    database(c.env).$count(
      batches,
      and(eq(batches.owner, owner), eq(batches.open, true), eq(sql`${batches.summary} ->> 'input_file_id'`, id)),
    ),
  );
  if (users > 0) throw new ApiError('conflict', 'A batch reads this file: wait for its end, or cancel it.');
  // The bytes are deleted first: if the store is unavailable, the row remains, and the same request can delete the file
  // later.
  await withStoreErrors(() => storeOf(c.env).delete(id));
  await deleteFileRows(c.env, [id], Date.now());
  return c.json({ id, object: 'file', deleted: true });
});

fileRoutes.get('/:id/content', async (c) => {
  const { owner } = await fileCaller(c);
  const row = await fileOf(c.env, owner, c.req.param('id'));
  const { id, bytes } = row;
  const etag = `"${id}-${bytes}"`;
  const same = c.req.header('if-range');
  const range = same === undefined || same === etag ? rangeOf(c.req.header('range'), bytes) : undefined;
  const { offset, length } = range ?? { offset: 0, length: bytes };
  const headers: Record<string, string> = {
    'content-type': 'application/octet-stream',
    'content-length': String(length),
    'content-disposition': `attachment; filename*=UTF-8''${encodeURIComponent(row.filename)}`,
    'x-content-type-options': 'nosniff',
    'accept-ranges': 'bytes',
    etag,
  };
  if (range !== undefined) headers['content-range'] = `bytes ${offset}-${offset + length - 1}/${bytes}`;
  const status = range === undefined ? 200 : 206;
  if (c.req.method === 'HEAD') return new Response(null, { status, headers });
  // Reads exactly as many bytes as the row states. If the store has fewer, the client gets an error and not a cut body.
  const content = await withStoreErrors(() => storeOf(c.env).read(id, { offset, length }));
  if (content === undefined) throw noFile(id);
  return new Response(toReadableStream(content), { status, headers });
});

/** Inserts the row of a file. @throws ApiError 429 if concurrent uploads of the owner used up the quota */
async function inserted(env: Env, row: FileRow, caller: FileCaller): Promise<void> {
  const { bytes, createdAt } = row;
  try {
    await queryOrUnavailable(
      database(env)
        .insert(files)
        .values({ ...row, bytes: bytesIfBelowQuota(env, caller, bytes, createdAt) }),
    );
  } catch (error) {
    await requireFileQuota(env, caller, bytes, createdAt);
    throw error;
  }
}

/** Returns the row of a file. @throws ApiError 404 if the file does not exist or belongs to another owner */
async function fileOf(env: Env, owner: string, id: string): Promise<FileRow> {
  const [row] = await queryOrUnavailable(
    database(env)
      .select()
      .from(files)
      .where(and(eq(files.id, id), eq(files.owner, owner), alive(Date.now()))),
  );
  if (row === undefined) throw noFile(id);
  return row;
}

async function* sniffed(content: AsyncIterable<Uint8Array>, sniffer: JsonlSniffer): AsyncGenerator<Uint8Array> {
  for await (const piece of content) {
    sniffer.push(piece);
    yield piece;
  }
}

function alive(now: number) {
  return or(isNull(files.expiresAt), gt(files.expiresAt, sql`${now}`));
}

function noFile(id: string): ApiError {
  return new ApiError('not_found', `No such File object: ${id.slice(0, 64)}`, { param: 'id' });
}

/** @throws ApiError 400, 413 */
function checkedFields(fields: ReadonlyMap<string, string>, bytes: number, now: number) {
  const purpose = fields.get('purpose');
  if (purpose === undefined)
    throw new ApiError('invalid_request', "Missing required parameter: 'purpose'.", { param: 'purpose' });
  if (!PURPOSES.some((one) => one === purpose))
    throw new ApiError('invalid_request', `'purpose' must be one of ${PURPOSES.join(', ')}.`, { param: 'purpose' });
  if (purpose === 'batch' && bytes > INPUT_MAX_BYTES)
    throw new ApiError('request_too_large', `A file for a batch must have at most ${INPUT_MAX_BYTES} bytes.`, {
      param: 'file',
    });
  const anchor = fields.get('expires_after[anchor]');
  const seconds = fields.get('expires_after[seconds]');
  if (anchor === undefined && seconds === undefined)
    return { purpose, expiresAt: purpose === 'batch' ? now + BATCH_FILE_MS : null };
  const count = Number(seconds);
  if (anchor !== 'created_at' || !Number.isInteger(count) || count < EXPIRES_S.least || count > EXPIRES_S.most) {
    const message = `'expires_after' must have the anchor 'created_at' and ${EXPIRES_S.least} to ${EXPIRES_S.most} seconds.`;
    throw new ApiError('invalid_request', message, { param: 'expires_after' });
  }
  return { purpose, expiresAt: now + count * 1_000 };
}
