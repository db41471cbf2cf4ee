/** How many bytes an owner may have here, counted where a row is written: two at once are both counted. */
import { and, count, eq, gt, type SQL, sql } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/errors.ts';
import { asked, database } from '../accounts/database.ts';
import { files, uploadParts, uploads } from '../accounts/schema.ts';
import type { Env } from '../env.ts';

/** Bytes that one owner may have here at a time. */
export const OWNER_MAX_BYTES = 20_000_000_000;
/** Of one upload: their ids fit into one body. */
export const PARTS_MAX = 1_000;

const total = (bytes: typeof files.bytes | typeof uploads.bytes) => sql<number>`coalesce(sum(${bytes}), 0)`;

/** Files, and all that pending uploads declare: their parts take room before there is a file. */
function takers(env: Pick<Env, 'DB'>, owner: string, now: number) {
  const db = database(env);
  const pending = and(eq(uploads.owner, owner), eq(uploads.status, 'pending'), gt(uploads.expiresAt, now));
  return [
    db
      .select({ bytes: total(files.bytes) })
      .from(files)
      .where(eq(files.owner, owner)),
    db
      .select({ bytes: total(uploads.bytes) })
      .from(uploads)
      .where(pending),
  ] as const;
}

/** @throws ApiError 503 */
export async function usedBytes(env: Pick<Env, 'DB'>, owner: string, now: number): Promise<number> {
  const [stored, pending] = await asked(database(env).batch(takers(env, owner, now)));
  return (stored[0]?.bytes ?? 0) + (pending[0]?.bytes ?? 0);
}

/** The bytes of a row that is inserted: NULL, which its table refuses, where its owner has no room for them. */
export function bytesWhereRoom(env: Pick<Env, 'DB'>, owner: string, bytes: number, now: number): SQL<number> {
  const [stored, pending] = takers(env, owner, now);
  return sql<number>`CASE WHEN (${stored}) + (${pending}) + ${bytes} <= ${OWNER_MAX_BYTES} THEN ${bytes} END`;
}

/** Likewise of a part, where its upload takes no more. */
export function bytesWhereWanted(env: Pick<Env, 'DB'>, uploadId: string, bytes: number): SQL<number> {
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
  return sql<number>`CASE WHEN (${taken}) + ${bytes} <= (${declared}) AND (${parts}) < ${PARTS_MAX} THEN ${bytes} END`;
}

/** @throws ApiError 429 */
export async function requireRoom(env: Pick<Env, 'DB'>, owner: string, bytes: number, now: number): Promise<number> {
  const room = OWNER_MAX_BYTES - (await usedBytes(env, owner, now));
  if (room >= bytes) return room;
  const message = `Your files and unfinished uploads may have ${OWNER_MAX_BYTES} bytes: delete some, or cancel one.`;
  throw new ApiError('insufficient_quota', message);
}

/** @returns how many bytes the upload still takes @throws ApiError 400 */
export async function requireWanted(
  env: Pick<Env, 'DB'>,
  upload: { id: string; bytes: number },
  bytes: number,
): Promise<number> {
  const found = database(env)
    .select({ bytes: sql<number>`coalesce(sum(${uploadParts.bytes}), 0)`, parts: count() })
    .from(uploadParts)
    .where(eq(uploadParts.uploadId, upload.id));
  const [stored] = await asked(found);
  const room = upload.bytes - (stored?.bytes ?? 0);
  if (room >= bytes && (stored?.parts ?? 0) < PARTS_MAX) return room;
  const message = `The parts have all of the ${upload.bytes} bytes that were declared.`;
  throw new ApiError('invalid_request', message, { param: 'data' });
}
