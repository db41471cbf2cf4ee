/**
 * Quotas for the files and batches of one owner, a setting of the gateway. The owner is a project, otherwise a user,
 * otherwise a key.
 */
import * as z from 'zod';

const FILES = 20_000;
const BYTES = 20_000_000_000;
const OPEN_BATCHES = 100;

export const fileLimitsSchema = z.strictObject({
  /** Files, unfinished uploads and their parts. Even an empty one needs a row, and a name in the file store. */
  count: z.int().min(1).max(1_000_000).default(FILES),
  /** Sum over all of them. */
  bytes: z.int().min(1).max(1e15).default(BYTES),
  /** Batches that have not ended. */
  open_batches: z.int().min(1).max(10_000).default(OPEN_BATCHES),
});

export type FileLimits = z.infer<typeof fileLimitsSchema>;

export const FILE_LIMITS: FileLimits = fileLimitsSchema.parse({});
