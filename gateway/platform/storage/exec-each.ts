import type { Sql, SqlValue } from '../object-context.ts';

/**
 * Runs one writing statement once for each list of bindings. Bound values cost SQLite two thirds of the same values as
 * one JSON text: it would parse the text, and serialize each element again.
 */
export function execEach(sql: Sql, query: string, rows: readonly (readonly SqlValue[])[]): void {
  if (sql.execEach !== undefined) return sql.execEach(query, rows);
  for (const row of rows) sql.exec(query, ...row);
}
