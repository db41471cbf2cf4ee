import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import type { Me, Usage } from '../../api/schemas.ts';
import { saveAsFile } from '../../parts/download.ts';
import { count, milliseconds } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Empty, Show } from '../../ui/feedback.tsx';
import { Field, Select } from '../../ui/field.tsx';
import { Section } from '../../ui/page.tsx';
import { type Column, DataTable } from '../../ui/table.tsx';
import { nameOf, type Range, totalsBy, type UsageGroup } from './usage-query.ts';

const texts = t.usage;

const GROUPS: Readonly<Record<Me['role'], readonly UsageGroup[]>> = {
  consumer: ['model', 'key', 'day'],
  provider: ['model', 'provider', 'peer', 'day'],
  operator: ['model', 'user', 'project', 'provider', 'peer', 'key', 'day'],
};

interface TotalsProps {
  range: Range;
  role: Me['role'];
  filter: string;
}

/** Usage totals, by the chosen group. */
export function Totals({ range, role, filter }: TotalsProps) {
  const [group, setGroup] = useState<UsageGroup>('model');
  const totals = useQuery({
    queryKey: ['usage', group, range, filter],
    queryFn: async ({ signal }) => ({ group, rows: await totalsBy(group, range, filter, signal) }),
    placeholderData: keepPreviousData,
  });
  return (
    <Section
      title={texts.totals}
      actions={
        <Field label={texts.by} className="w-40">
          {(id) => (
            <Select
              id={id}
              value={group}
              onChange={({ currentTarget: { value } }) =>
                setGroup(GROUPS[role].find((one) => one === value) ?? 'model')
              }
            >
              {GROUPS[role].map((one) => (
                <option key={one} value={one}>
                  {texts.groups[one]}
                </option>
              ))}
            </Select>
          )}
        </Field>
      }
    >
      <Show of={totals}>
        {({ group: of, rows }) => (rows.length === 0 ? <Empty>{texts.none}</Empty> : <Table data={rows} group={of} />)}
      </Show>
    </Section>
  );
}

function columnsOf(group: UsageGroup, data: readonly Usage[]): Column<Usage>[] {
  const number = (id: string, header: string, value: (one: Usage) => number, write = count): Column<Usage> => ({
    id,
    header,
    numeric: true,
    value,
    cell: (one) => write(value(one)),
  });
  const time = (id: string, header: string, ms: (one: Usage) => number | null | undefined): Column<Usage> => ({
    id,
    header,
    numeric: true,
    value: (one) => ms(one) ?? Number.POSITIVE_INFINITY,
    cell: (one) => {
      const told = ms(one);
      return told == null ? t.common.none : milliseconds(told);
    },
  });
  const { columns } = texts;
  return [
    { id: group, header: texts.groups[group], value: (one) => nameOf(one, group), cell: (one) => nameOf(one, group) },
    number('requests', columns.requests, ({ requests }) => requests),
    number('failed', columns.failed, ({ failed = 0 }) => failed),
    number('read', columns.read, ({ prompt_tokens = 0 }) => prompt_tokens),
    number('written', columns.written, ({ completion_tokens = 0 }) => completion_tokens),
    time('first', columns.first, ({ mean_first_token_ms: ms }) => ms),
    time('whole', columns.whole, ({ mean_total_ms: ms }) => ms),
    number('gpu', columns.gpu, ({ gpu_seconds = 0 }) => gpu_seconds / 3_600),
    // Most installations serve neither audio nor images.
    ...[
      number('audio', columns.audio, ({ audio_seconds = 0 }) => audio_seconds / 60),
      number('images', columns.images, ({ images = 0 }) => images),
    ].filter(({ value }) => data.some((one) => Number(value?.(one)) > 0)),
  ];
}

function Table({ data, group }: { data: readonly Usage[]; group: UsageGroup }) {
  const columns = useMemo(() => columnsOf(group, data), [group, data]);
  return (
    <>
      <DataTable
        label={texts.title(texts.groups[group])}
        rows={data}
        columns={columns}
        rowId={(one) => nameOf(one, group)}
      />
      <p>
        <Button onClick={() => saveAsFile(`usage-by-${group}.csv`, 'text/csv', usageCsv(data, group))}>
          {texts.csv}
        </Button>
      </p>
    </>
  );
}

const COLUMNS = [
  'requests',
  'failed',
  'prompt_tokens',
  'completion_tokens',
  'mean_first_token_ms',
  'mean_total_ms',
  'gpu_seconds',
  'audio_seconds',
  'images',
] as const;

/**
 * Usage as CSV (RFC 4180). A mean over no requests is an empty cell. A cell that a spreadsheet would read as a formula
 * is escaped.
 */
function usageCsv(data: readonly Usage[], group: UsageGroup): string {
  const quoted = (text: string) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const rows = data.map((one) => [quoted(nameOf(one, group)), ...COLUMNS.map((column) => String(one[column] ?? ''))]);
  return [[group, ...COLUMNS], ...rows].map((row) => `${row.join(',')}\r\n`).join('');
}
