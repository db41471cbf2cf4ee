/**
 * Deletes rows of files. For a day, keeps the position that each file had in its owner's list, because a client may be
 * reading that list.
 */
import { and, eq, inArray, lt, sql } from 'drizzle-orm';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { deletedFiles, files } from './file-tables.ts';

/** How long a position is kept. Reading a list takes less. */
const RETENTION_MS = 86_400_000;

/** @param ids at most 90, the maximum that a statement binds @throws ApiError 503 */
export async function deleteFileRows(env: Pick<Env, 'DB'>, ids: readonly string[], now: number): Promise<void> {
  const db = database(env);
  const those = inArray(files.id, [...ids]);
  const { id, owner, createdAt } = files;
  const places = db
    .select({ id, owner, createdAt, deletedAt: sql<number>`${now}`.as('deleted_at') })
    .from(files)
    .where(those);
  await queryOrUnavailable(
    db.batch([db.insert(deletedFiles).select(places).onConflictDoNothing(), db.delete(files).where(those)]),
  );
}

/** Deletes old positions. @throws ApiError 503 */
export async function forgetPositions(env: Pick<Env, 'DB'>, now: number): Promise<void> {
  await queryOrUnavailable(
    database(env)
      .delete(deletedFiles)
      .where(lt(deletedFiles.deletedAt, now - RETENTION_MS)),
  );
}

/**
 * Returns the position of a file in its owner's list, even if the file was deleted within the last day. Undefined: the
 * owner had no such file.
 * @throws ApiError 503
 */
export async function positionOf(
  env: Pick<Env, 'DB'>,
  owner: string,
  id: string,
): Promise<{ createdAt: number; id: string } | undefined> {
  const db = database(env);
  const [[kept], [gone]] = await queryOrUnavailable(
    db.batch([
      db
        .select({ id: files.id, createdAt: files.createdAt })
        .from(files)
        .where(and(eq(files.id, id), eq(files.owner, owner))),
      db
        .select({ id: deletedFiles.id, createdAt: deletedFiles.createdAt })
        .from(deletedFiles)
        .where(and(eq(deletedFiles.id, id), eq(deletedFiles.owner, owner))),
    ]),
  );
  return kept ?? gone;
}
