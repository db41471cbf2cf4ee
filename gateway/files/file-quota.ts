/**
 * Limits the number and bytes of an owner's files. The statement that inserts a row also computes the current use, so
 * that two concurrent insertions cannot exceed the quota together.
 */
import { and, count, eq, gt, type SQL, sql } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import type { FileLimits } from '../settings/file-limits.ts';
import { fileBytesInFlight, partBytesInFlight } from './bytes-in-flight.ts';
import { files, uploadParts, uploads } from './file-tables.ts';

/** Maximum parts of one upload, so that their ids fit into one body. */
export const PARTS_MAX = 1_000;

type Limits = Pick<FileLimits, 'count' | 'bytes'>;

interface Owner {
  owner: string;
  limits: Limits;
}

const total = (bytes: typeof files.bytes | typeof uploads.bytes) => sql<number>`coalesce(sum(${bytes}), 0)`;

/**
 * Rows that use an owner's quota. Bytes: of files, and the declared bytes of pending uploads, because parts need space
 * before the file exists. Count: files, pending uploads and their parts.
 */
function takers(env: Pick<Env, 'DB'>, owner: string, now: number) {
  const db = database(env);
  const mine = eq(files.owner, owner);
  const pending = and(eq(uploads.owner, owner), eq(uploads.status, 'pending'), gt(uploads.expiresAt, now));
  return {
    bytes: [
      db
        .select({ n: total(files.bytes) })
        .from(files)
        .where(mine),
      db
        .select({ n: total(uploads.bytes) })
        .from(uploads)
        .where(pending),
    ],
    count: [
      db.select({ n: count() }).from(files).where(mine),
      db.select({ n: count() }).from(uploads).where(pending),
      db
        .select({ n: count() })
        .from(uploadParts)
        .innerJoin(uploads, eq(uploads.id, uploadParts.uploadId))
        .where(pending),
    ],
  } as const;
}

/** Returns the use of an owner's quota. @throws ApiError 503 */
export async function quotaUse(env: Pick<Env, 'DB'>, owner: string, now: number): Promise<Limits> {
  const { bytes, count: each } = takers(env, owner, now);
  const [[stored], [declared], [whole], [begun], [parts]] = await queryOrUnavailable(
    database(env).batch([...bytes, ...each]),
  );
  return {
    bytes: (stored?.n ?? 0) + (declared?.n ?? 0),
    count: (whole?.n ?? 0) + (begun?.n ?? 0) + (parts?.n ?? 0),
  };
}

/** SQL for the bytes of an inserted row, or NULL, which the table refuses, if they exceed the owner's quota. */
export function bytesIfBelowQuota(
  env: Pick<Env, 'DB'>,
  { owner, limits }: Owner,
  bytes: number,
  now: number,
): SQL<number> {
  const taken = takers(env, owner, now);
  const [stored, declared] = taken.bytes;
  return sql<number>`CASE WHEN (${stored}) + (${declared}) + ${bytes} <= ${limits.bytes} AND ${fewFiles(taken, limits)} THEN cast(${bytes} AS bigint) END`;
}

function fewFiles({ count: [whole, begun, parts] }: ReturnType<typeof takers>, limits: Limits): SQL {
  return sql`(${whole}) + (${begun}) + (${parts}) < ${limits.count}`;
}

/**
 * SQL for the bytes of an inserted part, or NULL if its upload has ended, has not declared so many bytes or has too
 * many parts, or if its owner has too many files.
 */
export function bytesIfUploadOpen(
  env: Pick<Env, 'DB'>,
  uploadId: string,
  { owner, limits }: Owner,
  bytes: number,
  now: number,
): SQL<number> {
  const db = database(env);
  const others = eq(uploadParts.uploadId, uploadId);
  const taken = db
    .select({ bytes: sql`coalesce(sum(${uploadParts.bytes}), 0)` })
    .from(uploadParts)
    .where(others);
  const parts = db.select({ n: count() }).from(uploadParts).where(others);
  const declared = db
    .select({ bytes: uploads.bytes })
    .from(uploads)
    .where(and(eq(uploads.id, uploadId), eq(uploads.status, 'pending')));
  return sql<number>`CASE WHEN (${taken}) + ${bytes} <= (${declared}) AND (${parts}) < ${PARTS_MAX} AND ${fewFiles(takers(env, owner, now), limits)} THEN cast(${bytes} AS bigint) END`;
}

/** @returns the owner's remaining bytes @throws ApiError 429 */
export async function requireFileQuota(
  env: Pick<Env, 'DB'>,
  { owner, limits }: Owner,
  bytes: number,
  now: number,
): Promise<number> {
  const used = await quotaUse(env, owner, now);
  requireFew(used, limits);
  const room = limits.bytes - used.bytes - fileBytesInFlight.of(owner, now);
  if (room >= bytes) return room;
  const message = `Your files and unfinished uploads may have at most ${limits.bytes} bytes: delete a file, or cancel an upload.`;
  throw new ApiError('insufficient_quota', message);
}

/**
 * Checks only the number of files, for the parts of an upload: its bytes were counted when it began.
 * @throws ApiError 429
 */
export async function requireFileCount(env: Pick<Env, 'DB'>, { owner, limits }: Owner, now: number): Promise<void> {
  requireFew(await quotaUse(env, owner, now), limits);
}

function requireFew({ count: used }: Limits, { count: most }: Limits): void {
  if (used < most) return;
  const message = `You have ${used} files, unfinished uploads and parts; the maximum is ${most}: delete a file, or cancel an upload.`;
  throw new ApiError('insufficient_quota', message);
}

/** @returns the remaining bytes of the upload @throws ApiError 400 */
export async function requireUploadSpace(
  env: Pick<Env, 'DB'>,
  upload: { id: string; bytes: number },
  bytes: number,
  now: number,
): Promise<number> {
  const found = database(env)
    .select({ bytes: sql<number>`coalesce(sum(${uploadParts.bytes}), 0)`, parts: count() })
    .from(uploadParts)
    .where(eq(uploadParts.uploadId, upload.id));
  const [stored] = await queryOrUnavailable(found);
  const room = upload.bytes - (stored?.bytes ?? 0) - partBytesInFlight.of(upload.id, now);
  if (room >= bytes && (stored?.parts ?? 0) < PARTS_MAX) return room;
  const message = `The parts, including those that are still arriving, already have all ${upload.bytes} declared bytes.`;
  throw new ApiError('invalid_request', message, { param: 'data' });
}
