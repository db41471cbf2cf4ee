/**
 * What the gateway stores in D1. Times are milliseconds since the epoch, UTC; the REST face writes them as RFC 3339.
 * A row that gave somebody a right is revoked, never deleted: usage and audit go on pointing at its id.
 */
import { sql } from 'drizzle-orm';
import { index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';

export const ROLES = ['consumer', 'operator'] as const;
export type Role = (typeof ROLES)[number];

export const apiKeys = sqliteTable(
  'api_keys',
  {
    id: text('id').primaryKey(),
    /** SHA-256 of the whole key, lower-case hex. The key is 256 random bits, so no salt and no slow hash are needed. */
    hash: text('hash').notNull().unique(),
    /** First characters of the key: enough for its owner to recognise it, too little to guess the rest. */
    prefix: text('prefix').notNull(),
    name: text('name').notNull(),
    role: text('role', { enum: ROLES }).notNull(),
    createdAt: integer('created_at').notNull(),
    revokedAt: integer('revoked_at'),
  },
  (table) => [
    index('api_keys_created').on(table.createdAt, table.id),
    // The registry asks for the last minutes' revocations each time it loads; most keys are never revoked.
    index('api_keys_revoked').on(table.revokedAt).where(sql`revoked_at IS NOT NULL`),
  ],
);

/** What lets an agent in: names its provider and, where set, the only cluster it may speak for. */
export const joinTokens = sqliteTable(
  'join_tokens',
  {
    id: text('id').primaryKey(),
    hash: text('hash').notNull().unique(),
    prefix: text('prefix').notNull(),
    name: text('name').notNull(),
    provider: text('provider').notNull(),
    cluster: text('cluster'),
    createdAt: integer('created_at').notNull(),
    revokedAt: integer('revoked_at'),
  },
  (table) => [index('join_tokens_created').on(table.createdAt, table.id)],
);

/** Per model, what differs from the gateway's defaults; NULL is the default. */
export const modelSettings = sqliteTable('model_settings', {
  model: text('model').primaryKey(),
  firstByteMs: integer('first_byte_ms'),
  stallMs: integer('stall_ms'),
  updatedAt: integer('updated_at').notNull(),
});
