/**
 * SQL that databases write differently. All other SQL of the accounts is understood by SQLite, D1 and PostgreSQL.
 */
import { type Column, type SQL, sql } from 'drizzle-orm';
import type { Env } from '../env.ts';

type Expression = SQL | Column | string | number;

export interface SqlFragments {
  least(a: Expression, b: Expression): SQL;
  greatest(a: Expression, b: Expression): SQL;
  /** The sum of a column as a floating-point number; 0 without rows. An integer sum could overflow. */
  total(column: Column): SQL;
  /** The id of a new line of the audit log, for INSERT … SELECT. */
  newAuditId: SQL;
  /** A JSON object of texts. @param members names are constants of the code */
  jsonObject(members: Readonly<Record<string, Expression>>): SQL;
  /** The members of a JSON object as a table with the columns `key` and `value`. */
  jsonMembers(text: string, name: string): SQL;
  /** True if a JSON list of texts contains `value`. */
  jsonListHas(list: Column, value: string): SQL;
  /** A JSON list of texts with `value` at its end and without the text `without`. */
  jsonListWith(list: Column, value: string, without: string): SQL;
}

const SQLITE_FRAGMENTS: SqlFragments = {
  least: (a, b) => sql`min(${a}, ${b})`,
  greatest: (a, b) => sql`max(${a}, ${b})`,
  total: (column) => sql`total(${column})`,
  newAuditId: sql`NULL`,
  jsonObject: (members) =>
    sql`json_object(${sql.join(
      Object.entries(members).flatMap(([name, value]) => [sql.raw(`'${name}'`), sql`${value}`]),
      sql`, `,
    )})`,
  jsonMembers: (text, name) => sql`json_each(${text}) AS ${sql.identifier(name)}`,
  jsonListHas: (list, value) => sql`EXISTS (SELECT 1 FROM json_each(${list}) WHERE value = ${value})`,
  jsonListWith: (list, value, without) =>
    sql`(SELECT json_group_array(value) FROM json_each(json_insert(${list}, '$[#]', ${value})) WHERE value <> ${without})`,
};

/** Returns the fragments for the database of accounts. */
export function sqlFragments({ DB }: Pick<Env, 'DB'>): SqlFragments {
  return DB.dialect?.fragments ?? SQLITE_FRAGMENTS;
}
