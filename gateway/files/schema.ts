/** D1's tables of files, uploads and batches; see accounts/schema.ts. */
import { sql } from 'drizzle-orm';
import { index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';

/** Files of the Files API. Their bytes are in the file store under the same id. */
export const files = sqliteTable(
  'files',
  {
    id: text('id').primaryKey(),
    /** The owner: `project:…`, `user:…` or `key:…`. */
    owner: text('owner').notNull(),
    /** The key or user that created it. */
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
 * Positions in their owner's list of files that were deleted within the last day, because a client may delete files
 * while it lists them.
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

/** Uploads in parts, until they are complete. */
export const uploads = sqliteTable(
  'uploads',
  {
    id: text('id').primaryKey(),
    owner: text('owner').notNull(),
    createdBy: text('created_by').notNull(),
    purpose: text('purpose').notNull(),
    filename: text('filename').notNull(),
    /** As declared: the sum of the parts must equal it. */
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
    /** Of its bytes in the file store. */
    fileId: text('file_id').notNull(),
    bytes: integer('bytes').notNull(),
    createdAt: integer('created_at').notNull(),
  },
  (table) => [index('upload_parts_upload').on(table.uploadId)],
);

/** Batches, for lists. The current state of a batch is in its object, which updates this row when the state changes. */
export const batches = sqliteTable(
  'batches',
  {
    id: text('id').primaryKey(),
    owner: text('owner').notNull(),
    createdBy: text('created_by').notNull(),
    createdAt: integer('created_at').notNull(),
    /** Not in a terminal state: each file sweep calls its object, so that a batch without an alarm continues. */
    open: integer('open', { mode: 'boolean' }).notNull(),
    /** OpenAI's batch object as it was when this row was written. */
    summary: text('summary', { mode: 'json' }).$type<unknown>().notNull(),
  },
  (table) => [
    index('batches_owner').on(table.owner, table.createdAt, table.id),
    index('batches_open').on(table.open).where(sql`open = 1`),
  ],
);
