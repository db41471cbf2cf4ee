/** The tables of accounts, as both databases have them. */
import { is } from 'drizzle-orm';
import { getTableConfig, type SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import * as accounts from '../../../accounts/account-tables.ts';
import * as models from '../../../accounts/model-tables.ts';
import * as files from '../../../files/file-tables.ts';
import * as usage from '../../../usage/usage-tables.ts';

interface MigratedColumn {
  name: string;
  /** Type of a parameter with this column's values. */
  sent: 'text' | 'bigint' | 'boolean' | 'json';
}

export interface MigratedTable {
  name: string;
  columns: readonly MigratedColumn[];
  /** Columns of the primary key. Both databases compare them as bytes or as numbers, so both have the same order. */
  order: readonly string[];
  /** The column that the database counts up; undefined: none. */
  counted: string | undefined;
}

const TYPES: Readonly<Record<string, MigratedColumn['sent']>> = { boolean: 'boolean', json: 'json', string: 'text' };

export const MIGRATED_TABLES: readonly MigratedTable[] = [accounts, models, files, usage]
  .flatMap((module): unknown[] => Object.values(module))
  .filter((value): value is SQLiteTable => is(value, SQLiteTable))
  .map(migratedTable);

function migratedTable(table: SQLiteTable): MigratedTable {
  const { name, columns, primaryKeys } = getTableConfig(table);
  const [key] = primaryKeys;
  const ordering = key === undefined ? columns.filter(({ primary }) => primary) : key.columns;
  return {
    name,
    columns: columns.map((column) => ({ name: column.name, sent: TYPES[column.dataType] ?? 'bigint' })),
    order: ordering.map((column) => column.name),
    counted: columns.find(isCounted)?.name,
  };
}

function isCounted(column: SQLiteColumn): boolean {
  return 'autoIncrement' in column && column.autoIncrement === true;
}
