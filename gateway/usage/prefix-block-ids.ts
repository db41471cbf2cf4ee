/**
 * Prefix buckets: ids of the blocks with which prompts begin. They show which prompts begin with the same text, and
 * mean nothing outside this installation.
 */
import { createHmac } from 'node:crypto';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { UsageRecord } from '../../shared/usage/usage-record.ts';
import { BLOCK_DIGEST_BYTES } from '../../shared/wire/protocol-constants.ts';
import { openIdentity, receiptSealOf } from '../accounts/payer-receipt.ts';
import type { Env } from '../env.ts';
import { usageShardOf } from './usage-row.ts';

/** 64 bits are enough: among a billion blocks, two rarely have the same id. An id reveals nothing about its block. */
const BUCKET_BYTES = 8;

/**
 * Maximum digests of token blocks that wait for their records, and their bytes: a node's responses of a few seconds.
 * Beyond them the oldest are dropped.
 */
const WAITING_MAX = 1_000;
const WAITING_MAX_BYTES = 2 * 1024 * 1024;
/** How long digests wait for their record, which is on disk one tick after its report. */
const RECORD_WITHIN_MS = 60_000;

export interface PrefixAnnotation {
  session: string;
  stream: number;
  request: string;
  attempt: number;
  /** Bucket ids in base64url, in the order of the prompt. Empty: the engine has no tokenizer. */
  buckets: string[];
}

/**
 * Computes bucket ids: equal ids mean equal blocks. The ids depend on the installation's secret, so that a reader
 * cannot guess a block and compare its id.
 */
function bucketsOf(secret: string, blocks: Uint8Array): string[] {
  const buckets: string[] = [];
  for (let at = 0; at + BLOCK_DIGEST_BYTES <= blocks.length; at += BLOCK_DIGEST_BYTES) {
    const hmac = createHmac('sha256', `otela-prefix-1\n${secret}`).update(blocks.subarray(at, at + BLOCK_DIGEST_BYTES));
    buckets.push(toBase64url(hmac.digest().subarray(0, BUCKET_BYTES)));
  }
  return buckets;
}

/** Digests that wait for their records. Only in memory: they are never stored, and are lost with the object. */
export class PendingPrefixBlocks {
  readonly #waiting = new Map<number, { blocks: Uint8Array; until: number }>();
  #bytes = 0;

  add(stream: number, blocks: Uint8Array, now: number): void {
    this.#delete(stream);
    this.#waiting.set(stream, { blocks, until: now + RECORD_WITHIN_MS });
    this.#bytes += blocks.length;
    for (const oldest of this.#waiting.keys()) {
      if (this.#waiting.size <= WAITING_MAX && this.#bytes <= WAITING_MAX_BYTES) return;
      this.#delete(oldest);
    }
  }

  #delete(stream: number): void {
    this.#bytes -= this.#waiting.get(stream)?.blocks.length ?? 0;
    this.#waiting.delete(stream);
  }

  get idle(): boolean {
    return this.#waiting.size === 0;
  }

  /**
   * Adds the buckets to forwarded records of projects that enabled them. `record` returns the stored record of a
   * stream.
   */
  async handOn(
    env: Pick<Env, 'USAGE'>,
    secret: string,
    session: string,
    { record, now }: { record(stream: number): UsageRecord | undefined; now: number },
  ): Promise<void> {
    const shards = new Map<string, PrefixAnnotation[]>();
    for (const [stream, { blocks, until }] of this.#waiting) {
      const known = record(stream);
      if (known === undefined && now < until) continue;
      this.#delete(stream);
      if (known === undefined || !(await enablesBuckets(secret, known))) continue;
      const shard = usageShardOf(known.at);
      const { requestId: request, attempt } = known;
      const note = { session, stream, request, attempt, buckets: bucketsOf(secret, blocks) };
      shards.set(shard, [...(shards.get(shard) ?? []), note]);
    }
    await Promise.all([...shards].map(([shard, notes]) => env.USAGE.getByName(shard).annotate(notes)));
  }
}

/**
 * True if the record's project enabled prefix buckets. An agent may send prefixes for any stream, so this is checked.
 */
async function enablesBuckets(secret: string, { receipt }: UsageRecord): Promise<boolean> {
  return (await openIdentity(secret, receiptSealOf(receipt))).prefixes;
}
