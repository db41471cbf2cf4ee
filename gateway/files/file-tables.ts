/** Tables in D1 about files, uploads and batches; see accounts/account-tables.ts. */
import { sql } from 'drizzle-orm';
import { index, integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core';

/** Files of the Files API. Their bytes are in the file store under the same id. */
export const files = sqliteTable(
  'files',
  {
    id: text('id').primaryKey(),
    /** Owner of the file: `project:…`, `user:…` or `key:…`. */
    owner: text('owner').notNull(),
    /** Id of the key or user that created the file. */
    createdBy: text('created_by').notNull(),
    purpose: text('purpose').notNull(),
    filename: text('filename').notNull(),
    bytes: integer('bytes').notNull(),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at'),
  },
  (table) => [
    index('files_owner').on(table.owner, table.createdAt, table.id),
    index('files_expires').on(table.expiresAt),
  ],
);

/**
 * For each file that was deleted within the last day: its position in its owner's list. A client that deletes files
 * while it lists them can then still name a deleted file in `after`.
 */
export const deletedFiles = sqliteTable(
  'deleted_files',
  {
    id: text('id').primaryKey(),
    owner: text('owner').notNull(),
    createdAt: integer('created_at').notNull(),
    deletedAt: integer('deleted_at').notNull(),
  },
  (table) => [index('deleted_files_deleted').on(table.deletedAt)],
);

/** Uploads in parts that are not complete yet. */
export const uploads = sqliteTable(
  'uploads',
  {
    id: text('id').primaryKey(),
    owner: text('owner').notNull(),
    createdBy: text('created_by').notNull(),
    purpose: text('purpose').notNull(),
    filename: text('filename').notNull(),
    /** The declared size of the file. The sum of the parts must equal it. */
    bytes: integer('bytes').notNull(),
    status: text('status', { enum: ['pending', 'completed', 'cancelled'] }).notNull(),
    fileId: text('file_id'),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at').notNull(),
  },
  (table) => [index('uploads_expires').on(table.status, table.expiresAt)],
);

export const uploadParts = sqliteTable(
  'upload_parts',
  {
    id: text('id').primaryKey(),
    uploadId: text('upload_id').notNull(),
    /** Name of the part's bytes in the file store. */
    fileId: text('file_id').notNull(),
    bytes: integer('bytes').notNull(),
    createdAt: integer('created_at').notNull(),
  },
  (table) => [index('upload_parts_upload').on(table.uploadId)],
);

/** Time at which a batch ended, in seconds since the epoch; NULL while it runs. The index `batches_ended` has it. */
export const batchEndedAt = sql<number | null>`CAST(CASE summary ->> 'status'
  WHEN 'completed' THEN summary ->> 'completed_at' WHEN 'failed' THEN summary ->> 'failed_at'
  WHEN 'expired' THEN summary ->> 'expired_at' WHEN 'cancelled' THEN summary ->> 'cancelled_at' END AS NUMERIC)`;

/**
 * Batches, for lists. The current state of a batch is in its batch object, which updates this row when the state
 * changes.
 */
export const batches = sqliteTable(
  'batches',
  {
    id: text('id').primaryKey(),
    owner: text('owner').notNull(),
    createdBy: text('created_by').notNull(),
    createdAt: integer('created_at').notNull(),
    /**
     * True until the batch is in a terminal state. Each file sweep calls the objects of open batches, so that a batch
     * that lost its alarm continues.
     */
    open: integer('open', { mode: 'boolean' }).notNull(),
    /** OpenAI's batch object at the time when this row was written. */
    summary: text('summary', { mode: 'json' }).$type<unknown>().notNull(),
  },
  (table) => [
    index('batches_owner').on(table.owner, table.createdAt, table.id),
    index('batches_open').on(table.open).where(sql`open = 1`),
    index('batches_ended').on(batchEndedAt),
  ],
);

/**
 * Secrets that owners stored for their functions. The value is encrypted with the installation's secret, and no API
 * returns it.
 */
export const functionSecrets = sqliteTable(
  'function_secrets',
  {
    owner: text('owner').notNull(),
    name: text('name').notNull(),
    sealed: text('sealed').notNull(),
    /** Id of the key that stored it. */
    createdBy: text('created_by').notNull(),
    createdAt: integer('created_at').notNull(),
  },
  (table) => [primaryKey({ columns: [table.owner, table.name] })],
);
