/** D1's tables of usage totals; see accounts/account-tables.ts. */
import { index, integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core';

/**
 * Usage totals by day (`2026-11-20`, UTC). An empty text means "none", because NULL would break the primary key. Since
 * migration 0005 the table is WITHOUT ROWID, which drizzle cannot express: rows are stored in the order of the primary
 * key, which makes reading a range of days three times as fast.
 */
export const usageTotals = sqliteTable(
  'usage_totals',
  {
    day: text('day').notNull(),
    project: text('project').notNull(),
    user: text('user').notNull(),
    key: text('key').notNull(),
    model: text('model').notNull(),
    provider: text('provider').notNull(),
    requests: integer('requests').notNull(),
    failed: integer('failed').notNull(),
    aborted: integer('aborted').notNull(),
    estimated: integer('estimated').notNull(),
    prompt: integer('prompt_tokens').notNull(),
    completion: integer('completion_tokens').notNull(),
    cached: integer('cached_tokens').notNull(),
    reasoning: integer('reasoning_tokens').notNull(),
    /** Number of requests with a first token. `firstTokenMs` and `engineFirstTokenMs` are sums over these requests. */
    firstTokens: integer('first_tokens').notNull().default(0),
    /** Sum of milliseconds to the first token as the client saw it, including waits in queues. */
    firstTokenMs: integer('first_token_ms').notNull(),
    /** Sum of milliseconds from the moment when the node received the request to the first token. */
    engineFirstTokenMs: integer('engine_first_token_ms').notNull().default(0),
    /** Sum of milliseconds in queues over all requests. */
    queueMs: integer('queue_ms').notNull().default(0),
    /** Number of requests in `totalMs`: without lines of batches, and without attempts of unknown duration. */
    timed: integer('timed').notNull().default(0),
    totalMs: integer('total_ms').notNull(),
    /** Sum of GPU milliseconds; see `UsageRow.gpuMs`. */
    gpuMs: integer('gpu_ms').notNull().default(0),
    /** Sum of milliseconds of audio; see `UsageRow.audioMs`. */
    audioMs: integer('audio_ms').notNull().default(0),
    images: integer('images').notNull().default(0),
  },
  (table) => [
    primaryKey({ columns: [table.day, table.project, table.user, table.key, table.model, table.provider] }),
    index('usage_totals_provider').on(table.provider, table.day),
    index('usage_totals_user').on(table.user, table.day),
  ],
);

/** Batches of totals that were added. A repeated batch changes nothing. */
export const usageBatches = sqliteTable(
  'usage_batches',
  {
    shard: text('shard').notNull(),
    batch: integer('batch').notNull(),
  },
  (table) => [primaryKey({ columns: [table.shard, table.batch] })],
);
