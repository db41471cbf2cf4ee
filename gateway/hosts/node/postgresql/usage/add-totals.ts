/** Adds to the usage totals in PostgreSQL. */
import { getTableColumns } from 'drizzle-orm';
import { usageTotals } from '../../../../usage/usage-tables.ts';
import { USAGE_COUNTERS, USAGE_SUM_MAX, type UsageTotal } from '../../../../usage/usage-totals.ts';
import type { Connection } from '../postgres-pool.ts';
import { wholeNumber } from './record-columns.ts';

const TOTAL_COLUMNS = Object.entries(getTableColumns(usageTotals)) as [keyof UsageTotal, { name: string }][];
const COUNTED: ReadonlySet<keyof UsageTotal> = new Set(USAGE_COUNTERS);
const ADD_TOTALS = statement();

function statement(): string {
  const columns = TOTAL_COLUMNS.map(([, { name }]) => `"${name}"`);
  const lists = TOTAL_COLUMNS.map(([member], at) => `$${at + 1}::${COUNTED.has(member) ? 'bigint' : 'text'}[]`);
  const named = TOTAL_COLUMNS.filter(([member]) => !COUNTED.has(member)).map(([, { name }]) => `"${name}"`);
  const sums = TOTAL_COLUMNS.filter(([member]) => COUNTED.has(member)).map(
    ([, { name }]) => `"${name}" = least(usage_totals."${name}" + excluded."${name}", ${USAGE_SUM_MAX})`,
  );
  return `INSERT INTO usage_totals (${columns.join(', ')}) SELECT * FROM unnest(${lists.join(', ')})
    ON CONFLICT (${named.join(', ')}) DO UPDATE SET ${sums.join(', ')}`;
}

/** @param totals by their `totalKey` */
export async function addTotals(connection: Connection, totals: ReadonlyMap<string, UsageTotal>): Promise<void> {
  if (totals.size === 0) return;
  // Two transactions that add to the same totals lock them in the same order.
  const sorted = [...totals].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, total]) => total);
  const lists = TOTAL_COLUMNS.map(([member]) =>
    sorted.map((total) => {
      const value = total[member];
      return typeof value === 'number' ? wholeNumber(value) : value;
    }),
  );
  await connection.query(ADD_TOTALS, lists);
}
