/** `/v1/files`, OpenAI's. */
import { randomBytes } from 'node:crypto';
import { and, asc, desc, eq, gt, isNull, lt, or, sql } from 'drizzle-orm';
import { Hono } from 'hono';
import { INPUT_MAX_BYTES } from '../../shared/batch/input-check.ts';
import { JsonlSniffer } from '../../shared/batch/jsonl-sniffer.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { asked, database, requireWritable } from '../accounts/database.ts';
import { batches, files } from '../accounts/schema.ts';
import type { Env } from '../env.ts';
import { type FileRow, fileObject, PURPOSES } from './file-object.ts';
import { type FileStore, FileStoreError, FileTooLarge } from './file-store.ts';
import { readForm } from './multipart.ts';
import { callerOf } from './owner.ts';
import { listOf, pageOf } from './paging.ts';
import { bytesWhereRoom, requireRoom } from './quota.ts';
import { FILE_SWEEP_NAME } from './sweep-object.ts';

/** OpenAI's: files of a batch are smaller. */
export const FILE_MAX_BYTES = 512_000_000;
/** Default life of a batch's input. */
export const BATCH_FILE_MS = 30 * 86_400_000;
const EXPIRES_S = { least: 3_600, most: 2_592_000 };
const FILENAME_MAX = 255;

export const fileRoutes = new Hono<{ Bindings: Env }>();

fileRoutes.post('/', async (c) => {
  const { account, owner } = await callerOf(c);
  requireWritable();
  const store = storeOf(c.env);
  const room = await requireRoom(c.env, owner, 1, Date.now());
  const id = newFileId();
  const sniffer = new JsonlSniffer();
  try {
    const { fields, filename, stored } = await storing(() =>
      readForm(c.req.raw, (content) => store.put(id, sniffed(content, sniffer), Math.min(FILE_MAX_BYTES, room))),
    );
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
    await inserted(c.env, row);
    c.executionCtx.waitUntil(wakeSweep(c.env));
    return c.json(fileObject(row));
  } catch (error) {
    // Also of a form that breaks off behind its file: what no row names would count against no owner.
    await store.delete(id).catch(() => {});
    throw error;
  }
});

fileRoutes.get('/', async (c) => {
  const { owner } = await callerOf(c);
  const { limit, after, ascending } = pageOf((name) => c.req.query(name), { limit: 10_000, most: 10_000 });
  const db = database(c.env);
  const from = after === undefined ? undefined : await fileOf(c.env, owner, after);
  const purpose = c.req.query('purpose');
  const [order, beyond] = ascending ? [asc, gt] : [desc, lt];
  const rows = await asked(
    db
      .select()
      .from(files)
      .where(
        and(
          eq(files.owner, owner),
          purpose === undefined ? undefined : eq(files.purpose, purpose),
          alive(Date.now()),
          from &&
            or(
              beyond(files.createdAt, from.createdAt),
              and(eq(files.createdAt, from.createdAt), beyond(files.id, from.id)),
            ),
        ),
      )
      .orderBy(order(files.createdAt), order(files.id))
      .limit(limit + 1),
  );
  return c.json(listOf(rows.map(fileObject), limit));
});

fileRoutes.get('/:id', async (c) => {
  const { owner } = await callerOf(c);
  return c.json(fileObject(await fileOf(c.env, owner, c.req.param('id'))));
});

fileRoutes.delete('/:id', async (c) => {
  const { owner } = await callerOf(c);
  requireWritable();
  const { id } = await fileOf(c.env, owner, c.req.param('id'));
  const users = await asked(
    database(c.env).$count(
      batches,
      and(
        eq(batches.owner, owner),
        eq(batches.open, true),
        eq(sql`json_extract(${batches.summary}, '$.input_file_id')`, id),
      ),
    ),
  );
  if (users > 0) throw new ApiError('conflict', 'A batch reads this file: wait for its end, or cancel it.');
  // The row first: a file without a row is never found, a row without a file is an error to its owner.
  await asked(database(c.env).delete(files).where(eq(files.id, id)));
  await storing(() => storeOf(c.env).delete(id));
  return c.json({ id, object: 'file', deleted: true });
});

fileRoutes.get('/:id/content', async (c) => {
  const { owner } = await callerOf(c);
  const { id, bytes, filename } = await fileOf(c.env, owner, c.req.param('id'));
  const content = await storing(() => storeOf(c.env).read(id));
  if (content === undefined) throw noFile(id);
  return new Response(streamOf(content), {
    headers: {
      'content-type': 'application/octet-stream',
      'content-length': String(bytes),
      'content-disposition': `attachment; filename*=UTF-8''${encodeURIComponent(filename)}`,
      'x-content-type-options': 'nosniff',
    },
  });
});

/** @throws ApiError 429 where others of the owner took the room meanwhile */
async function inserted(env: Env, row: FileRow): Promise<void> {
  const { owner, bytes, createdAt } = row;
  try {
    await asked(
      database(env)
        .insert(files)
        .values({ ...row, bytes: bytesWhereRoom(env, owner, bytes, createdAt) }),
    );
  } catch (error) {
    await requireRoom(env, owner, bytes, createdAt);
    throw error;
  }
}

/** @throws ApiError 404: files of others do not exist for this caller */
async function fileOf(env: Env, owner: string, id: string): Promise<FileRow> {
  const [row] = await asked(
    database(env)
      .select()
      .from(files)
      .where(and(eq(files.id, id), eq(files.owner, owner), alive(Date.now()))),
  );
  if (row === undefined) throw noFile(id);
  return row;
}

export function storeOf({ FILES }: Env): FileStore {
  if (FILES !== undefined) return FILES;
  throw new ApiError('server_is_overloaded', 'This gateway has no file store: its operator has not configured one.');
}

/** Best effort: the next upload does it again. */
export async function wakeSweep({ FILE_SWEEP }: Env): Promise<void> {
  await FILE_SWEEP.getByName(FILE_SWEEP_NAME)
    .wake()
    .catch(() => {});
}

export function newFileId(): string {
  return `file-${randomBytes(12).toString('hex')}`;
}

async function* sniffed(content: AsyncIterable<Uint8Array>, sniffer: JsonlSniffer): AsyncGenerator<Uint8Array> {
  for await (const piece of content) {
    sniffer.push(piece);
    yield piece;
  }
}

/** What people are told of a store that does not do its work; details are for its operator's log. */
export const STORE_MESSAGES: Readonly<Record<FileStoreError['code'], string>> = {
  full: 'The file store is full.',
  unavailable: 'The file store cannot be reached now.',
  damaged: 'The file store has lost a part of this file.',
};

/** Turns what the store throws into what a client is told. @throws ApiError 413, 503 */
export async function storing<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (cause) {
    if (cause instanceof FileTooLarge)
      throw new ApiError('request_too_large', `The file is larger than allowed: ${cause.message}.`, {
        param: 'file',
        cause,
      });
    if (cause instanceof FileStoreError) {
      throw new ApiError('server_is_overloaded', STORE_MESSAGES[cause.code], { cause });
    }
    throw cause;
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
    throw new ApiError('request_too_large', `A file for a batch has at most ${INPUT_MAX_BYTES} bytes.`, {
      param: 'file',
    });
  const anchor = fields.get('expires_after[anchor]');
  const seconds = fields.get('expires_after[seconds]');
  if (anchor === undefined && seconds === undefined)
    return { purpose, expiresAt: purpose === 'batch' ? now + BATCH_FILE_MS : null };
  const count = Number(seconds);
  if (anchor !== 'created_at' || !Number.isInteger(count) || count < EXPIRES_S.least || count > EXPIRES_S.most) {
    const message = `'expires_after' has the anchor 'created_at' and ${EXPIRES_S.least} to ${EXPIRES_S.most} seconds.`;
    throw new ApiError('invalid_request', message, { param: 'expires_after' });
  }
  return { purpose, expiresAt: now + count * 1_000 };
}

export function streamOf(content: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const pieces = content[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await pieces.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await pieces.return?.();
    },
  });
}
