/** What the files and batches of one owner may be at a time: one setting of the gateway. An owner is a project, else a person, else a key. */
import * as z from 'zod';

const FILES = 20_000;
const BYTES = 20_000_000_000;
const OPEN_BATCHES = 100;

export const fileLimitsSchema = z.strictObject({
  /** Files, unfinished uploads and the parts of these: what has no bytes has a row and a name in the store. */
  count: z.int().min(1).max(1_000_000).default(FILES),
  /** Of all of them. */
  bytes: z.int().min(1).max(1e15).default(BYTES),
  /** Batches that are not over. */
  open_batches: z.int().min(1).max(10_000).default(OPEN_BATCHES),
});

export type FileLimits = z.infer<typeof fileLimitsSchema>;

export const FILE_LIMITS: FileLimits = fileLimitsSchema.parse({});
