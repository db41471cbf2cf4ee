import * as z from 'zod';
import { LINES_MAX } from './batch-input-check.ts';

const count = z.int().nonnegative();

/** Lines of one chunk that a gateway grants to a node until the lease ends. */
export const grantedLease = z.object({
  batch: z.string(),
  endpoint: z.string(),
  chunk: count,
  epoch: count,
  /** The lines to run, by their index in the chunk. */
  open: z.array(count).max(LINES_MAX),
  bytes: count,
  /** The chunk, if the node asked for it with the lease and it is short. Absent: the node asks for it. */
  lines: z.string().exactOptional(),
  prefix: count,
  leaseMs: z.int().positive(),
  /**
   * Maximum number of reasoning tokens per answer. If the node's engine accepts such a limit, the node writes it into
   * each line's request.
   */
  reasoningTokens: z.int().positive().exactOptional(),
  /** For a batch of a function: what must be loaded to run its lines, and the function's owner. */
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

/** State of a lease after a renewal or a commit. */
export const leaseState = z.object({
  /** False if the lease has ended. Then running lines may finish, and the node starts no further lines. */
  leased: z.boolean(),
  /**
   * True if no line of the lease is needed any more, because the batch was cancelled, or other nodes have answered all
   * of them. Absent: false.
   */
  stop: z.boolean().exactOptional(),
  /**
   * Other nodes are idle, and no line is free. The node keeps this many lines that have not begun, and returns the
   * others. Absent: it keeps all.
   */
  keep: count.exactOptional(),
});
export type LeaseState = z.infer<typeof leaseState>;

export const commitCountsSchema = leaseState.extend({
  /** Indices of failed lines that this node must retry. */
  again: z.array(count).max(LINES_MAX),
  /** Number of failed lines that another node retries. */
  elsewhere: count.exactOptional(),
});
export type CommitCounts = z.infer<typeof commitCountsSchema>;
