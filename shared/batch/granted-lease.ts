import * as z from 'zod';
import { LINES_MAX } from './input-check.ts';

const count = z.int().nonnegative();

/** What a gateway grants a node: lines of one chunk, until the lease ends. */
export const grantedLease = z.object({
  batch: z.string(),
  endpoint: z.string(),
  chunk: count,
  epoch: count,
  /** Lines to run, by their index in the chunk. */
  open: z.array(count).max(LINES_MAX),
  bytes: count,
  prefix: count,
  leaseMs: z.int().positive(),
  /** Of a batch of a function: what must be loaded to run the lines, and whose it is. */
  function: z
    .object({
      context: z.string(),
      name: z.string().exactOptional(),
      sha256: z.string(),
      owner: z.string(),
      model: z.string(),
    })
    .exactOptional(),
});
export type GrantedLease = z.infer<typeof grantedLease>;

/** Whether the lease still holds, after a renewal or a commit. */
export const leaseState = z.object({ leased: z.boolean() });

/** `again`: lines that failed and are to be tried here again. `elsewhere`: how many another node shall try. */
export const committed = leaseState.extend({
  again: z.array(count).max(LINES_MAX),
  elsewhere: count.exactOptional(),
});
