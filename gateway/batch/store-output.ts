/** Stores a file that a call of a function wrote, as its node sends it. */
import { createHash } from 'node:crypto';
import { and, eq, gt } from 'drizzle-orm';
import type { OutputFile } from '../../shared/batch/function-files.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { database, queryOrUnavailable, requireWritable } from '../accounts/database.ts';
import { readGatewaySettings } from '../accounts/gateway-settings.ts';
import type { Env } from '../env.ts';
import { fileBytesInFlight } from '../files/bytes-in-flight.ts';
import { bytesIfBelowQuota, requireFileQuota } from '../files/file-quota.ts';
import { files } from '../files/file-tables.ts';
import { storeOf, withStoreErrors } from '../files/store-access.ts';
import { wakeSweep } from '../files/sweep-object.ts';

/** The place of a file that a call wrote. */
export interface OutputPlace {
  id: string;
  owner: string;
  createdBy: string;
  /** Milliseconds since the epoch. The end of the batch sets an earlier time. */
  expiresAt: number;
}

/**
 * True if the gateway already has the file, so that the node need not send it.
 * @throws ApiError 429 if it does not fit into the owner's quota, 503
 */
export async function hasOutput(env: Env, place: OutputPlace, { bytes }: OutputFile, now: number): Promise<boolean> {
  if (await isKnown(env, place.id, now)) return true;
  await requireFileQuota(env, await ownerOf(env, place, now), bytes, now);
  return false;
}

/**
 * Stores the bytes of a file. A node that sends other bytes than it announced stores nothing.
 * @throws ApiError 400, 413, 429, 503
 */
export async function storeOutput(
  env: Env,
  place: OutputPlace,
  file: OutputFile,
  content: AsyncIterable<Uint8Array>,
  now: number,
): Promise<void> {
  requireWritable();
  const store = storeOf(env);
  const { id, owner, createdBy, expiresAt } = place;
  const quota = await ownerOf(env, place, now);
  await requireFileQuota(env, quota, file.bytes, now);
  const end = fileBytesInFlight.take(owner, file.bytes, now);
  try {
    await withStoreErrors(() => store.put(id, checked(content, file), file.bytes));
  } finally {
    end();
  }
  const row = {
    id,
    owner,
    createdBy,
    purpose: 'batch_output',
    filename: file.name,
    bytes: bytesIfBelowQuota(env, quota, file.bytes, now),
    createdAt: now,
    expiresAt,
  };
  try {
    await queryOrUnavailable(database(env).insert(files).values(row).onConflictDoNothing());
  } catch (error) {
    // Another node may have stored the same file meanwhile.
    if (await isKnown(env, id, now)) return;
    await store.delete(id).catch(() => {});
    await requireFileQuota(env, quota, file.bytes, now);
    throw error;
  }
  await wakeSweep(env);
}

async function isKnown(env: Env, id: string, now: number): Promise<boolean> {
  const known = and(eq(files.id, id), gt(files.expiresAt, now));
  return (await queryOrUnavailable(database(env).$count(files, known))) > 0;
}

async function ownerOf(env: Env, { owner }: OutputPlace, now: number) {
  const { files: limits } = await readGatewaySettings(env, now);
  return { owner, limits };
}

/** Passes the bytes on. @throws ApiError 400 at the end, so that the store keeps nothing of other bytes */
async function* checked(content: AsyncIterable<Uint8Array>, { sha256, bytes }: OutputFile): AsyncGenerator<Uint8Array> {
  const hash = createHash('sha256');
  let read = 0;
  for await (const piece of content) {
    read += piece.length;
    hash.update(piece);
    yield piece;
  }
  if (read === bytes && hash.digest('hex') === sha256) return;
  throw new ApiError('invalid_request', 'The bytes of the file are not those that were announced.');
}
