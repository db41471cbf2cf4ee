import { useMemo } from 'react';
import type { Batch } from '../../api/batches.ts';
import { count } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Section } from '../../ui/page.tsx';
import { type Column, DataTable } from '../../ui/table.tsx';

const texts = t.batches.one;
/** Maximum number of errors that the gateway reports. */
const ERRORS_SHOWN = 1_000;

type Row = NonNullable<Batch['errors']>['data'][number] & { n: number };

/** Shows why the file was refused, line by line. */
export function BatchErrors({ batch: { errors } }: { batch: Batch }) {
  const rows = useMemo(() => errors?.data.map((error, n) => ({ ...error, n })) ?? [], [errors]);
  if (rows.length === 0) return null;
  return (
    <Section title={texts.badTitle(rows.length)}>
      <p className="text-muted">
        {texts.badAbout} {rows.length >= ERRORS_SHOWN && texts.badMax}
      </p>
      <DataTable label={texts.badTitle(rows.length)} rows={rows} columns={COLUMNS} rowId={({ n }) => String(n)} />
    </Section>
  );
}

const { badColumns } = texts;
const COLUMNS: readonly Column<Row>[] = [
  {
    id: 'line',
    header: badColumns.line,
    value: ({ line }) => line ?? 0,
    cell: ({ line }) => (line == null ? texts.wholeFile : count(line)),
  },
  { id: 'what', header: badColumns.what, value: ({ message }) => message, cell: ({ message }) => message },
  {
    id: 'where',
    header: badColumns.where,
    cell: ({ param }) => (param == null ? t.common.none : <code>{param}</code>),
  },
  { id: 'code', header: badColumns.code, value: ({ code }) => code, cell: ({ code }) => <code>{code}</code> },
];
