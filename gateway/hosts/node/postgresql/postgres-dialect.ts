/**
 * Renders queries that were built with drizzle's SQLite builders for PostgreSQL. drizzle's PgDialect writes the text;
 * the only difference is the conflict clause of INSERT, which the builders store in another form.
 */
import { Column, is, SQL, type SQLChunk, sql } from 'drizzle-orm';
import { DrizzleD1Database, SQLiteD1Session } from 'drizzle-orm/d1';
import { PgDialect } from 'drizzle-orm/pg-core';
import type { SQLiteAsyncDialect } from 'drizzle-orm/sqlite-core';

type InsertConfig = Parameters<PgDialect['buildInsertQuery']>[0];

class PostgresDialect extends PgDialect {
  override buildInsertQuery(config: InsertConfig): SQL {
    const { onConflict, returning, ...rest } = config;
    const conflicts = ((onConflict ?? []) as unknown as SQL[]).map(plainTarget);
    const insert = super.buildInsertQuery(rest as InsertConfig);
    // The clause RETURNING must follow the conflict clause.
    const returned = returning && sql` returning ${columnNames(returning.map(({ field }) => field as Column))}`;
    return sql`${insert}${conflicts.length > 0 ? sql.join(conflicts) : undefined}${returned}`;
  }
}

/** Removes the table's name from the columns of a conflict target, where PostgreSQL does not accept it. */
function plainTarget(conflict: SQL): SQL {
  return new SQL(conflict.queryChunks.map((chunk) => (is(chunk, SQL) ? targetOf(chunk) : chunk)));
}

function targetOf(chunk: SQL): SQLChunk {
  const list = chunk.queryChunks.find((part) => Array.isArray(part)) ?? [];
  const columns = list.filter((one): one is Column => is(one, Column));
  return columns.length > 0 ? sql`(${columnNames(columns)})` : chunk;
}

function columnNames(columns: readonly Column[]): SQL {
  return sql.join(
    columns.map(({ name }) => sql.identifier(name)),
    sql`, `,
  );
}

/** Returns drizzle's interface to a database of accounts in PostgreSQL. @param client D1's interface to it */
export function postgresQueries(client: D1Database): DrizzleD1Database {
  const dialect = new PostgresDialect() as unknown as SQLiteAsyncDialect;
  return new DrizzleD1Database('async', dialect, new SQLiteD1Session(client, dialect, undefined), undefined);
}
