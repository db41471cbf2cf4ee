/**
 * Quotas for the files and batches of one owner; a setting of the gateway. The owner is the account's project,
 * otherwise its user, otherwise its key.
 */
import * as z from 'zod';

const FILES = 20_000;
const BYTES = 20_000_000_000;
const OPEN_BATCHES = 100;

export const fileLimitsSchema = z.strictObject({
  /**
   * Maximum number of files, unfinished uploads and their parts. Even an empty file needs a row in D1 and a name in the
   * file store.
   */
  count: z.int().min(1).max(1_000_000).default(FILES),
  /** Maximum bytes of all files together. */
  bytes: z.int().min(1).max(1e15).default(BYTES),
  /** Maximum batches that have not ended. */
  open_batches: z.int().min(1).max(10_000).default(OPEN_BATCHES),
});

export type FileLimits = z.infer<typeof fileLimitsSchema>;

export const FILE_LIMITS: FileLimits = fileLimitsSchema.parse({});
