import {
  createSortedRowModel,
  rowSortingFeature,
  sortFn_alphanumeric,
  sortFn_basic,
  sortFn_text,
  tableFeatures,
  useTable,
} from '@tanstack/react-table';
import clsx from 'clsx';
import { type ReactNode, useMemo, useState } from 'react';
import { t } from '../texts/index.ts';
import { Button } from './button.tsx';
import { ArrowDown, ArrowUp, ChevronsUpDown } from './icons.ts';

export interface Column<Row> {
  id: string;
  header: string;
  /** The sort key. Absent: the column cannot be sorted. */
  value?: (row: Row) => string | number;
  cell: (row: Row) => ReactNode;
  /** Right-aligned, with figures of equal width. */
  numeric?: boolean;
  /** Keeps the cell on one line, as for dates. */
  nowrap?: boolean;
}

interface DataTableProps<Row> {
  /** Label of the scrolling region, read aloud. */
  label: string;
  /** Keep the object if it does not change: a new one is sorted again. */
  rows: readonly Row[];
  /** Define them at module scope, or memoize them. The cell of the first column names the row. */
  columns: readonly Column<Row>[];
  rowId: (row: Row) => string;
  /** Rows that are shown until the user asks for more. */
  pageSize?: number;
}

const features = tableFeatures({
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { alphanumeric: sortFn_alphanumeric, basic: sortFn_basic, text: sortFn_text },
});

/** Rows that are shown at first; more would cost a phone a second. */
const PAGE_ROWS = 100;

/** A table with sortable columns. It scrolls sideways, and is reachable by keyboard. */
export function DataTable<Row extends object>({
  label,
  rows,
  columns,
  rowId,
  pageSize = PAGE_ROWS,
}: DataTableProps<Row>) {
  const [drawn, setDrawn] = useState(pageSize);
  const definitions = useMemo(
    () =>
      columns.map(({ id, header, value, cell }) => ({
        id,
        header,
        ...(value === undefined ? {} : { accessorFn: value }),
        enableSorting: value !== undefined,
        cell: ({ row }: { row: { original: Row } }) => cell(row.original),
      })),
    [columns],
  );
  const data = useMemo(() => [...rows], [rows]);
  const table = useTable({ features, columns: definitions, data, getRowId: rowId, enableMultiSort: false });
  const numeric = new Set(columns.flatMap(({ id, numeric: is }) => (is ? [id] : [])));
  const nowrap = new Set(columns.flatMap(({ id, nowrap: is }) => (is ? [id] : [])));
  const sorted = table.getRowModel().rows;
  return (
    <>
      <section aria-label={label} tabIndex={0} className="overflow-x-auto rounded-lg border border-line bg-surface">
        <table className="w-full border-collapse text-sm">
          <Head table={table} numeric={numeric} />
          <tbody>
            {sorted.slice(0, drawn).map((row) => (
              <tr key={row.id} className="border-line border-t hover:bg-hover/50">
                {row.getAllCells().map((cell, n) => {
                  const { id } = cell.column;
                  const look = clsx(
                    'px-4 py-2.5 text-left [&_code]:whitespace-nowrap',
                    numeric.has(id) && 'text-right tabular-nums',
                    nowrap.has(id) && 'whitespace-nowrap',
                  );
                  const content = <table.FlexRender key={cell.id} cell={cell} />;
                  return n === 0 ? (
                    <th key={cell.id} scope="row" className={clsx(look, 'min-w-36 font-medium')}>
                      {content}
                    </th>
                  ) : (
                    <td key={cell.id} className={look}>
                      {content}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {sorted.length > drawn && <More onClick={() => setDrawn(drawn + 10 * pageSize)} />}
    </>
  );
}

function Head<Row extends object>({
  table,
  numeric,
}: {
  table: ReturnType<typeof useTable<typeof features, Row>>;
  numeric: ReadonlySet<string>;
}) {
  return (
    <thead>
      {table.getHeaderGroups().map((group) => (
        <tr key={group.id}>
          {group.headers.map(({ id, column }) => {
            const order = column.getIsSorted();
            const Icon = order === 'asc' ? ArrowUp : order === 'desc' ? ArrowDown : ChevronsUpDown;
            const title = String(column.columnDef.header ?? '');
            return (
              <th
                key={id}
                scope="col"
                aria-sort={order === false ? undefined : order === 'asc' ? 'ascending' : 'descending'}
                className={clsx(
                  'whitespace-nowrap px-4 py-2 font-medium text-muted text-xs',
                  numeric.has(column.id) ? 'text-right' : 'text-left',
                )}
              >
                {column.getCanSort() ? (
                  <button
                    type="button"
                    onClick={column.getToggleSortingHandler()}
                    className="inline-flex items-center gap-1 rounded-sm hover:text-ink"
                  >
                    {title}
                    <Icon className={clsx('size-3', order === false && 'opacity-40')} aria-hidden />
                  </button>
                ) : (
                  title
                )}
              </th>
            );
          })}
        </tr>
      ))}
    </thead>
  );
}

/**
 * Keeps the text of a cell on one line. Otherwise the cell would be tall and narrow on a phone, where the table can
 * scroll.
 */
export function Nowrap({ children }: { children: ReactNode }) {
  return <span className="whitespace-nowrap">{children}</span>;
}

/** The button below a list that has more rows. */
export function More({ onClick }: { onClick: () => void }) {
  return (
    <p className="flex justify-center">
      <Button onClick={onClick}>{t.common.showMore}</Button>
    </p>
  );
}
