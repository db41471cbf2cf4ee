import type { LineRequirements } from '../../../shared/batch/batch-input-check.ts';
import type { GrantedLease } from '../../../shared/batch/granted-lease.ts';
import type { Grant } from '../../../shared/batch/lease-ledger.ts';
import type { BatchFunction, BatchSpec } from '../batch-spec.ts';

/** A lease ends after this time without a renewal. Nodes renew at a sixth of it. */
export const BATCH_LEASE_MS = 60_000;

/** The requirements that a node must meet to get a lease of a batch. */
export interface BatchAdmission {
  account: BatchSpec['account'];
  endpoint: string;
  demands: LineRequirements[];
}

/**
 * Builds the lease for a node.
 * @param model name of the model in the lines @param made the function that the name stands for, if any
 */
export function leaseOf(
  { id, endpoint, owner }: BatchSpec,
  { chunk, lease, open }: Grant,
  model: string,
  made: BatchFunction | undefined,
): GrantedLease {
  const { bytes, prefix } = chunk;
  const of = { batch: id, endpoint, chunk: chunk.id, epoch: lease.epoch, open, bytes, prefix, leaseMs: BATCH_LEASE_MS };
  if (made === undefined) return of;
  const { context, name, sha256 } = made;
  return { ...of, function: { context, sha256, owner, model, ...(name === undefined ? {} : { name }) } };
}
