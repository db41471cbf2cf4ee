import { type ReactNode, useMemo, useState } from 'react';
import type { Resources } from '../api/resources.ts';
import { t } from '../texts/index.ts';
import { IconButton } from '../ui/button.tsx';
import { Empty, Show } from '../ui/feedback.tsx';
import { Input } from '../ui/field.tsx';
import { MoreHorizontal } from '../ui/icons.ts';
import { Menu, MenuItem } from '../ui/menu.tsx';
import { type Column, DataTable, More } from '../ui/table.tsx';

/** Lists with at least this many rows have a search field. */
const FIND_FROM = 8;

interface ResourceListProps<T> {
  label: string;
  of: Resources<T>;
  columns: readonly Column<T>[];
  /** The text of an empty list. */
  none: string;
  /** The text of a row in which the search looks. */
  words: (row: T) => string;
  rowId: (row: T) => string;
}

/** Resources as a table, with a search, and loaded a page at a time. */
export function ResourceList<T extends object>({ label, of, columns, none, words, rowId }: ResourceListProps<T>) {
  const [query, setQuery] = useState('');
  const all = of.data;
  const found = useMemo(() => {
    const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
    return (all ?? []).filter((row) => {
      const text = words(row).toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
  }, [all, query, words]);
  return (
    <Show of={of}>
      {(rows) => (
        <>
          {rows.length >= FIND_FROM && (
            <Input
              type="search"
              aria-label={t.list.find(label)}
              placeholder={t.list.find(label)}
              value={query}
              onChange={(event) => setQuery(event.currentTarget.value)}
              className="max-w-sm"
            />
          )}
          {rows.length === 0 ? (
            <Empty>{none}</Empty>
          ) : found.length === 0 ? (
            <Empty>{of.showMore === undefined ? t.list.notFound : t.list.notFoundYet}</Empty>
          ) : (
            <DataTable label={label} rows={found} columns={columns} rowId={rowId} pageSize={1000} />
          )}
          {of.showMore !== undefined && <More onClick={of.showMore} />}
        </>
      )}
    </Show>
  );
}

export interface RowAction {
  label: string;
  act: () => void;
  danger?: boolean;
}

/** Actions on one row, behind a button with three dots. */
export function RowMenu({ name, actions }: { name: string; actions: readonly (RowAction | false)[] }): ReactNode {
  const some = actions.filter((one) => one !== false);
  if (some.length === 0) return null;
  const trigger = (
    <IconButton label={t.list.actionsOf(name)}>
      <MoreHorizontal />
    </IconButton>
  );
  return (
    <Menu trigger={trigger}>
      {some.map(({ label, act, danger = false }) => (
        <MenuItem key={label} onClick={act} danger={danger}>
          {label}
        </MenuItem>
      ))}
    </Menu>
  );
}
