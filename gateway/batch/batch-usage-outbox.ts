import type { LineRequirements } from '../../shared/batch/batch-input-check.ts';
import type { LeaseLedger } from '../../shared/batch/lease-ledger.ts';
import type { LineResult } from '../../shared/batch/line-results.ts';
import type { AttemptSettlement } from '../accounts/limits/limits-object.ts';
import type { Env } from '../env.ts';
import type { ObjectStorage } from '../platform/object-context.ts';
import { type UsageRow, usageShardOf } from '../usage/usage-row.ts';
import type { BatchSpec } from './batch-spec.ts';
import { batchUsageRow, lineBytes } from './line-usage.ts';
import { objectOrUnavailable } from './step-failures.ts';

/**
 * Maximum commits that are forwarded together. A commit usually has about 64 KiB of results, so these are a few hundred
 * usage records.
 */
const COMMITS_PER_BATCH = 16;

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS bill (position INTEGER PRIMARY KEY AUTOINCREMENT, chunk INTEGER NOT NULL, seq INTEGER NOT NULL,
    node TEXT NOT NULL, provider TEXT NOT NULL, at INTEGER NOT NULL);
`;

/** Access to a batch's lines and results, from which usage records are made. */
interface BilledResults {
  readonly ledger: Pick<LeaseLedger, 'chunks'>;
  readonly demands: readonly LineRequirements[];
  resultsOf(chunk: number, seq: number): LineResult[];
}

/** A commit whose usage has not been reported yet. */
interface UnreportedCommit {
  position: number;
  chunk: number;
  /** Number of the commit within its chunk. */
  seq: number;
  node: string;
  provider: string;
  /** When the results were stored; milliseconds since the epoch. */
  at: number;
}

/**
 * Reports the usage of lines to the usage object of the hour and to the limits object. A commit and its entry here are
 * stored together, and the entry is deleted when both objects have the usage. If the gateway is killed before it
 * deletes the entry, it sends the entry again, and both objects recognize it by its name or position.
 */
export class BatchUsageOutbox {
  readonly #storage: ObjectStorage;

  constructor(storage: ObjectStorage) {
    this.#storage = storage;
    storage.sql.exec(SCHEMA);
  }

  /** Adds a commit. Called in the transaction that stores its results. */
  add({ chunk, seq, node, provider, at }: Omit<UnreportedCommit, 'position'>): void {
    const query = 'INSERT INTO bill (chunk, seq, node, provider, at) VALUES (?, ?, ?, ?, ?)';
    this.#storage.sql.exec(query, chunk, seq, node, provider, at);
  }

  /**
   * Forwards all entries.
   * @throws ObjectUnavailableError if an object does not answer; the remaining entries are forwarded next time
   */
  async handOn(env: Env, spec: BatchSpec, record: BilledResults): Promise<void> {
    for (;;) {
      const some = this.#pending();
      const last = some.at(-1);
      if (last === undefined) return;
      await handOn(env, spec, record, some);
      this.#storage.sql.exec('DELETE FROM bill WHERE position <= ?', last.position);
    }
  }

  #pending(): UnreportedCommit[] {
    const query = 'SELECT position, chunk, seq, node, provider, at FROM bill ORDER BY position LIMIT ?';
    return this.#storage.sql
      .exec<UnreportedCommit & Record<string, string | number>>(query, COMMITS_PER_BATCH)
      .toArray();
  }
}

async function handOn(
  env: Env,
  spec: BatchSpec,
  record: BilledResults,
  some: readonly UnreportedCommit[],
): Promise<void> {
  const shards = new Map<string, UsageRow[]>();
  const settlements: { position: number; settlement: AttemptSettlement }[] = [];
  for (const { position, chunk, seq, node, provider, at } of some) {
    const lines = record.ledger.chunks[chunk];
    const model = record.demands[lines?.demands ?? 0]?.model ?? '';
    const results = record.resultsOf(chunk, seq);
    const rows = results
      .filter(({ error }) => error === undefined)
      .map((result) =>
        batchUsageRow({ spec, result, ref: { node, chunk }, provider, at, model, inputBytes: lineBytes(lines) }),
      );
    const gpuMs = results.reduce((sum, { gpu_ms: ms = 0 }) => sum + ms, 0);
    const shard = shards.get(usageShardOf(at));
    if (shard === undefined) shards.set(usageShardOf(at), rows);
    else shard.push(...rows);
    settlements.push({ position, settlement: { ...settlementOf(spec, { position, at }, model, rows), gpuMs } });
  }
  const { limits } = spec.account;
  const added = [...shards].map(([shard, rows]) => env.USAGE.getByName(shard).add(rows));
  await Promise.all([
    objectOrUnavailable('usage records', Promise.all(added)),
    limits && objectOrUnavailable('limits', env.LIMITS.getByName(limits.subject).settle(spec.id, settlements)),
  ]);
}

/** Returns the settlement of one commit. `rows`: its usage records, which all have the same model. */
export function settlementOf(
  spec: BatchSpec,
  { position, at }: Pick<UnreportedCommit, 'position' | 'at'>,
  model: string,
  rows: readonly UsageRow[],
): AttemptSettlement {
  const { keyId, limits } = spec.account;
  const sets = [limits?.key, limits?.user, limits?.project];
  return {
    name: `${spec.id}/${position}`,
    keyId,
    ...(limits?.user !== undefined && { userId: limits.userId }),
    ...(sets.some((set) => set?.models !== undefined) && { model }),
    attempt: 1,
    isComplete: true,
    isReserved: false,
    at,
    prompt: rows.reduce((sum, { prompt }) => sum + prompt, 0),
    completion: rows.reduce((sum, { completion }) => sum + completion, 0),
    audioMs: rows.reduce((sum, { audioMs = 0 }) => sum + audioMs, 0),
  };
}
