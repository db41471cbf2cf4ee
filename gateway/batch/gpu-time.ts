import type { LeaseLedger, LeaseRef } from '../../shared/batch/lease-ledger.ts';
import type { LineResult } from '../../shared/batch/line-results.ts';

/** A node cannot charge for more GPUs, as for requests. */
const GPUS_MAX = 256;

/**
 * Bounds the GPU time that a node claims. The node's GPUs cannot have worked longer than since its last results of this
 * lease, or since it got the lease. After the lease's end nothing can be charged.
 */
export function withinGpuTime(
  ledger: LeaseLedger,
  ref: LeaseRef,
  results: readonly LineResult[],
  gpus: number,
  nowMs: number,
): LineResult[] {
  const found = ledger.leases.find(({ chunk, lease }) => chunk.id === ref.chunk && lease.epoch === ref.epoch);
  const lease = found?.lease.node === ref.node ? found.lease : undefined;
  const sinceMs = lease === undefined ? 0 : nowMs - (lease.progressMs ?? lease.grantedMs);
  const most = Math.min(gpus, GPUS_MAX) * Math.max(0, sinceMs);
  const claimed = results.reduce((sum, { gpu_ms: ms = 0 }) => sum + ms, 0);
  const share = claimed > most ? most / claimed : 1;
  return results.map((result) => (result.gpu_ms === undefined ? result : { ...result, gpu_ms: result.gpu_ms * share }));
}
