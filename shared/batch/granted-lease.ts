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
  /** Tokens that the reasoning of one answer may take: written into each line, where the node's engine takes such a limit. */
  reasoningTokens: z.int().positive().exactOptional(),
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

/** How a lease stands, after a renewal or a commit. */
export const leaseState = z.object({
  /** False: the lease has ended. Lines that run may end, no others begin. */
  leased: z.boolean(),
  /** No line of the lease is wanted any more: the batch was cancelled, or other nodes have answered all of them. Absent: false. */
  stop: z.boolean().exactOptional(),
});
export type LeaseState = z.infer<typeof leaseState>;

export const committed = leaseState.extend({
  /** Lines that failed and are to be tried here again. */
  again: z.array(count).max(LINES_MAX),
  /** How many failed lines another node shall try. */
  elsewhere: count.exactOptional(),
});
export type Committed = z.infer<typeof committed>;
