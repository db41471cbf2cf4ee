import type { Demands } from '../../shared/batch/input-check.ts';
import type { Grant } from '../../shared/batch/ledger.ts';
import type { BatchFunction, BatchSpec } from './batch-spec.ts';

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
  /** Of a batch of a function: what must be loaded to run the lines, and whose it is. */
  function?: { context: string; name?: string; sha256: string; owner: string; model: string };
}

/** What a node must meet, for the caller that filters. */
export interface BatchAdmission {
  account: BatchSpec['account'];
  endpoint: string;
  demands: Demands[];
}

/** @param model that the lines name, with `made` the function that it is */
export function leaseOf(
  { id, endpoint, owner }: BatchSpec,
  { chunk, lease, open }: Grant,
  model: string,
  made: BatchFunction | undefined,
): GrantedLease {
  const { bytes, prefix } = chunk;
  const of = { batch: id, endpoint, chunk: chunk.id, epoch: lease.epoch, open, bytes, prefix, leaseMs: LEASE_MS };
  if (made === undefined) return of;
  const { context, name, sha256 } = made;
  return { ...of, function: { context, sha256, owner, model, ...(name === undefined ? {} : { name }) } };
}
