import { randomBytes } from 'node:crypto';
import type { files } from './file-tables.ts';

/** Maximum bytes of a file, as at OpenAI. Files for a batch are smaller. */
export const FILE_MAX_BYTES = 512_000_000;
/** Default lifetime of a batch's input file. */
export const BATCH_FILE_MS = 30 * 86_400_000;

export type FileRow = typeof files.$inferSelect;

/** Purposes that a client may set. Result files of batches have the purpose `batch_output`. */
export const PURPOSES = ['batch', 'user_data', 'assistants', 'fine-tune', 'vision', 'evals'] as const;

/** OpenAI's file object. Times are seconds since the epoch. */
export interface FileObject {
  id: string;
  object: 'file';
  bytes: number;
  created_at: number;
  expires_at?: number;
  filename: string;
  purpose: string;
  status: 'processed';
}

export function fileObject({ id, bytes, createdAt, expiresAt, filename, purpose }: FileRow): FileObject {
  const created_at = Math.floor(createdAt / 1_000);
  const expires = expiresAt === null ? {} : { expires_at: Math.floor(expiresAt / 1_000) };
  return { id, object: 'file', bytes, created_at, ...expires, filename, purpose, status: 'processed' };
}

export function newFileId(): string {
  return `file-${randomBytes(12).toString('hex')}`;
}
