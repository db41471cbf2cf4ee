import type { QueuedBatch } from '../../../shared/batch/next-batch.ts';
import type { Env } from '../../env.ts';
import type { BatchRecord } from '../batch-record.ts';
import type { BatchSpec } from '../batch-spec.ts';
import { queueOf } from './lease-lines.ts';
import type { ContextCounts } from './node-contexts.ts';

/** The announcement of a batch to the queues of its models. */
export interface Offer {
  contender: QueuedBatch;
  /** Sessions that currently run lines of the batch. */
  nodes: string[];
  queues: string[];
}

/** Returns the announcement; undefined: the batch has no open line. */
export function offerOf(spec: BatchSpec, record: BatchRecord, nowMs: number): Offer | undefined {
  const { ledger, state, demands } = record;
  const { open, waiting, leased } = ledger;
  if (open === 0) return undefined;
  return {
    contender: {
      id: spec.id,
      project: spec.owner,
      expiresMs: state.times.expires_at * 1_000,
      waiting,
      leased,
      linesPerS: record.linesPerS(nowMs),
      late: waiting === 0 && ledger.isLate(nowMs),
      ...(record.function === undefined ? {} : { context: record.function.context }),
    },
    nodes: [...new Set(ledger.leases.map(({ lease }) => lease.node))],
    queues: [...new Set(demands.map(({ model }) => queueOf(spec.endpoint, model)))],
  };
}

/**
 * Sends an announcement to the queues. Failures are ignored: the batch announces again at its next check.
 * @returns on how many nodes the batch's function is (null: it has none, or the queue did not answer), and how many
 * nodes that could run it are idle
 */
export async function notifyQueues(
  env: Env,
  { contender: queued, nodes, queues }: Offer,
  untilMs: number,
): Promise<{ contexts: ContextCounts | null; idle: number }> {
  // Before the offers, which wake these nodes.
  const idle = queued.context === undefined ? [] : queues.map((name) => env.BATCH_QUEUE.getByName(name).idle(queued));
  const offers = queues.map((queue) => env.BATCH_QUEUE.getByName(queue).offer(queued, untilMs, nodes));
  const [[contexts], [count]] = await Promise.all([Promise.allSettled(offers), Promise.allSettled(idle)]);
  return {
    contexts: contexts?.status === 'fulfilled' ? contexts.value : null,
    idle: count?.status === 'fulfilled' ? count.value : 0,
  };
}
