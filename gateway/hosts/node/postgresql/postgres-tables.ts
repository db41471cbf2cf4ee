/**
 * The tables in PostgreSQL. The tables of accounts, files and usage are derived from the tables of SQLite, so that each
 * table is declared once. drizzle-kit generates migrations from this file; queries are built with the tables of SQLite.
 */

import { is, SQL, sql } from 'drizzle-orm';
import {
  bigint,
  boolean,
  customType,
  index,
  integer,
  json,
  type PgColumnBuilderBase,
  type PgTable,
  pgSequence,
  pgTable,
  primaryKey,
  smallint,
  text,
  uniqueIndex,
} from 'drizzle-orm/pg-core';
import { getTableConfig, type IndexColumn, type SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import * as accounts from '../../../accounts/account-tables.ts';
import * as models from '../../../accounts/model-tables.ts';
import * as files from '../../../files/file-tables.ts';
import * as usage from '../../../usage/usage-tables.ts';

/**
 * Pages are cut by comparing texts, so both databases must compare bytes. The order of the database's locale is
 * different.
 */
const bytewiseText = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });
const bytea = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

function columnOf(column: SQLiteColumn): PgColumnBuilderBase {
  const { name, notNull, primary, isUnique, uniqueName, hasDefault } = column;
  const builder = typed(column, name);
  let built = notNull ? builder.notNull() : builder;
  if (primary) built = built.primaryKey();
  if (isUnique) built = built.unique(uniqueName);
  return hasDefault && column.default !== undefined ? built.default(column.default as never) : built;
}

function typed(column: SQLiteColumn, name: string) {
  if (column.dataType === 'boolean') return boolean(name);
  if (column.dataType === 'json') return json(name);
  if (column.dataType === 'string') return bytewiseText(name);
  const whole = bigint(name, { mode: 'number' });
  return 'autoIncrement' in column && column.autoIncrement === true ? whole.generatedByDefaultAsIdentity() : whole;
}

function tableOf(table: SQLiteTable): PgTable {
  const { name, columns, indexes, primaryKeys } = getTableConfig(table);
  const built = Object.fromEntries(columns.map((column) => [column.name, columnOf(column)]));
  return pgTable(name, built, (own) => {
    const named = (column: IndexColumn) => (is(column, SQL) ? column : own[column.name]) as never;
    return [
      ...indexes.map(({ config }) => {
        const made = (config.unique ? uniqueIndex : index)(config.name);
        const [first, ...rest] = config.columns.map(named);
        const on = made.on(first as never, ...rest);
        return config.where === undefined ? on : on.where(conditionOf(config.name));
      }),
      ...primaryKeys.map((key) => {
        const [first, ...rest] = key.columns.map((column) => own[column.name] as never);
        return primaryKey({ columns: [first as never, ...rest] });
      }),
    ];
  });
}

/** Conditions of partial indexes: SQLite's text compares a boolean with 1. */
const CONDITIONS: Readonly<Record<string, string>> = {
  api_keys_revoked: 'revoked_at IS NOT NULL',
  batches_open: 'open',
};

/** @throws Error if an index has a condition that is not listed above */
function conditionOf(name: string) {
  const condition = CONDITIONS[name];
  if (condition === undefined) throw new Error(`postgres-tables.ts has no condition for the index ${name}`);
  return sql.raw(condition);
}

/** One export for each table, because drizzle-kit reads a module's exports. */
export const {
  apiKeys,
  users,
  projects,
  projectMembers,
  memberLimits,
  accessRequests,
  providerRights,
  providers,
  joinTokens,
  factoryTokens,
  settings,
  auditLog,
  idempotency,
  sessions,
  deviceLogins,
  peers,
} = each(accounts);
export const { modelSettings, catalogue, modelCards, modelWeights } = each(models);
export const { files: storedFiles, deletedFiles, uploads, uploadParts, batches, functionSecrets } = each(files);
export const { usageTotals, usageBatches } = each(usage);

/** The one data directory that uses this database. A single row. */
export const installation = pgTable('gateway_installation', {
  one: integer('one').primaryKey().default(1),
  /** Drawn when the database is first used, and also in the data directory. */
  id: text('id').notNull(),
  /** Host and path of the data directory, for messages. */
  place: text('place').notNull(),
  /** The process that uses the database. Each start draws another name. */
  holder: text('holder').notNull(),
  /** Counts up while the holder runs. */
  beat: bigint('beat', { mode: 'number' }).notNull().default(0),
  /** True if the holder ended normally. */
  left: boolean('left').notNull().default(false),
});

/** Numbers of processes. A data directory draws one when it first joins; the directory keeps it. */
export const processNumber = pgSequence('gateway_process_number');

/** Processes that share this database: one row for each start of a process. See cluster/process-table.ts. */
export const processes = pgTable('gateway_processes', {
  incarnation: text('incarnation').primaryKey(),
  process: bigint('process', { mode: 'number' }).notNull(),
  /** Host and port at which the other processes reach it. */
  address: text('address').notNull(),
  /** URL at which agents reach it; NULL: they only have an address that all processes share. */
  url: text('url'),
  version: text('version').notNull(),
  /** Counts up while the process runs. */
  beat: bigint('beat', { mode: 'number' }).notNull().default(0),
  /** NULL while it runs; then `left`, `proved` or `silent`. */
  ended: text('ended'),
  /** False while it cannot write to its disk: then it owns no objects. */
  stores: boolean('stores').notNull().default(true),
});

/** Secrets that all processes share, encrypted with the key of `--cluster-key`. */
export const secrets = pgTable('gateway_secrets', { name: text('name').primaryKey(), value: text('value').notNull() });

/** Which process owns the objects of a slot. See cluster/object-slots.ts. */
export const objectSlots = pgTable('object_slots', {
  slot: smallint('slot').primaryKey(),
  /** Incarnation of a process. */
  owner: text('owner'),
  epoch: bigint('epoch', { mode: 'number' }).notNull().default(0),
});

/** Writes of objects since their images. The primary key is the fence; see cluster/turn-log.ts. */
export const objectLog = pgTable(
  'object_log',
  {
    object: bytewiseText('object').notNull(),
    seq: bigint('seq', { mode: 'number' }).notNull(),
    owner: text('owner').notNull(),
    writes: bytea('writes').notNull(),
  },
  (own) => [primaryKey({ columns: [own.object, own.seq] })],
);

/** SQLite databases of objects, each with the number of the last row of the log that it contains. */
export const objectImages = pgTable('object_images', {
  object: bytewiseText('object').primaryKey(),
  seq: bigint('seq', { mode: 'number' }).notNull(),
  image: bytea('image').notNull(),
});

/** Usage records of all processes that share this database. See usage/usage-writer.ts. */
export const usageRecords = pgTable(
  'usage_records',
  {
    /** Names the attempt, so that a repeated record changes nothing. See usage/record-columns.ts. */
    name: bytewiseText('name').primaryKey(),
    /** Order in which records of an hour are listed. */
    n: bigint('n', { mode: 'number' }).notNull().generatedAlwaysAsIdentity(),
    /** The hour in UTC in which the attempt ended, e.g. `2026-11-27T19`. */
    hour: bytewiseText('hour').notNull(),
    at: bigint('at', { mode: 'number' }).notNull(),
    estimated: boolean('estimated').notNull(),
    traced: boolean('traced').notNull(),
    session: bytewiseText('session').notNull(),
    request: bytewiseText('request').notNull(),
    user: bytewiseText('user').notNull(),
    key: bytewiseText('key').notNull(),
    model: bytewiseText('model').notNull(),
    prompt: bigint('prompt', { mode: 'number' }).notNull(),
    completion: bigint('completion', { mode: 'number' }).notNull(),
    /** Number of identical requests that were refused within a second. */
    times: bigint('times', { mode: 'number' }).notNull(),
    /** True if the engine's or the gateway's status is 400 or above. */
    failed: boolean('failed').notNull(),
    error: text('error'),
    kind: text('kind'),
    totalMs: bigint('total_ms', { mode: 'number' }),
    /** The whole record as JSON. */
    row: text('row').notNull(),
    /** The estimate that `row` replaced. */
    replaced: text('replaced'),
    /** Prefix buckets as JSON, which become known after the record. */
    buckets: text('buckets'),
  },
  (own) => [
    index('usage_records_hour').on(own.hour, own.n),
    index('usage_records_request').on(own.request),
    index('usage_records_owner').on(own.hour, own.user, own.key),
  ],
);

export const objectAlarms = pgTable(
  'object_alarms',
  {
    object: bytewiseText('object').primaryKey(),
    slot: smallint('slot').notNull(),
    at: bigint('at', { mode: 'number' }).notNull(),
  },
  (own) => [index('object_alarms_slot').on(own.slot)],
);

type TablesOf<M> = { [Name in keyof M as M[Name] extends SQLiteTable ? Name : never]: PgTable };

function each<M extends object>(module: M): TablesOf<M> {
  const tables = Object.entries(module).filter(([, value]) => isTable(value));
  return Object.fromEntries(tables.map(([name, table]) => [name, tableOf(table)])) as TablesOf<M>;
}

function isTable(value: unknown): value is SQLiteTable {
  return is(value, SQLiteTable);
}
