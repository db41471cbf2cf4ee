import type { Demands } from '../../shared/batch/input-check.ts';
import type { Grant } from '../../shared/batch/ledger.ts';
import type { BatchSpec } from './batch-spec.ts';

/** A lease without a sign of life for so long has ended. Nodes renew at a third of it. */
export const LEASE_MS = 60_000;

/** What a lease tells a node. */
export interface GrantedLease {
  batch: string;
  endpoint: string;
  chunk: number;
  epoch: number;
  /** Lines to run, by their index in the chunk. */
  open: number[];
  bytes: number;
  prefix: number;
  leaseMs: number;
}

/** What a node must meet, for the caller that filters. */
export interface BatchAdmission {
  account: BatchSpec['account'];
  endpoint: string;
  demands: Demands[];
}

export function leaseOf({ id, endpoint }: BatchSpec, { chunk, lease, open }: Grant): GrantedLease {
  const { bytes, prefix } = chunk;
  return { batch: id, endpoint, chunk: chunk.id, epoch: lease.epoch, open, bytes, prefix, leaseMs: LEASE_MS };
}
