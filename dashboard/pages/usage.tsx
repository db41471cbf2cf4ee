import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useEffect, useMemo, useState } from 'react';
import * as z from 'zod/mini';
import { ask } from '../api/client.ts';
import { type Me, type Usage, usageSchema } from '../api/schemas.ts';
import { count, milliseconds } from '../parts/format.ts';
import { useMe } from '../parts/session.tsx';
import { t } from '../texts/index.ts';
import { buttonClass } from '../ui/button.tsx';
import { Empty, Show } from '../ui/feedback.tsx';
import { Field, Select } from '../ui/field.tsx';
import { Page } from '../ui/page.tsx';
import { Plot } from '../ui/plot.tsx';
import { type Column, DataTable } from '../ui/table.tsx';

const texts = t.usage;
type Group = keyof typeof texts.groups;

const totalsSchema = z.object({ data: z.array(usageSchema), next: z.nullable(z.string()) });

/** All of it: a sum that lacks some would be a wrong one. */
async function totalsBy(group: string, signal: AbortSignal): Promise<Usage[]> {
  const all: Usage[] = [];
  for (let after = ''; ; ) {
    const { data, next } = await ask(totalsSchema, `/admin/usage?group_by=${group}${after}`, signal);
    all.push(...data);
    if (next === null) return all;
    after = `&after=${encodeURIComponent(next)}`;
  }
}

const GROUPS: Readonly<Record<Me['role'], readonly Group[]>> = {
  consumer: ['day', 'model', 'key'],
  provider: ['day', 'model', 'provider'],
  operator: ['day', 'model', 'user', 'project', 'provider', 'key'],
};

export function Component() {
  const me = useMe();
  const [group, setGroup] = useState<Group>('model');
  const days = useQuery({ queryKey: ['usage', 'day'], queryFn: ({ signal }) => totalsBy('day', signal) });
  const totals = useQuery({
    queryKey: ['usage', group],
    queryFn: async ({ signal }) => ({ group, rows: await totalsBy(group, signal) }),
    placeholderData: keepPreviousData,
  });
  return (
    <Page title={t.pages.usage} about={texts.about}>
      <Show of={days}>{(data) => <Days data={data} />}</Show>
      <Field label={texts.by} className="max-w-60">
        {(id) => (
          <Select
            id={id}
            value={group}
            onChange={({ currentTarget: { value } }) =>
              setGroup(GROUPS[me.role].find((one) => one === value) ?? 'model')
            }
          >
            {GROUPS[me.role].map((one) => (
              <option key={one} value={one}>
                {texts.groups[one]}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <Show of={totals}>
        {({ group: of, rows }) => (rows.length === 0 ? <Empty>{texts.none}</Empty> : <Totals data={rows} group={of} />)}
      </Show>
    </Page>
  );
}

/** At least a month, so that a first day is not stretched over a year. */
function lastDays(from: number, to: number): [number, number] {
  return [Math.min(from, to - 29 * 86_400), to + 43_200];
}

function Days({ data }: { data: readonly Usage[] }) {
  const [times, lines] = useMemo(() => {
    const sorted = [...data].sort((a, b) => name(a, 'day').localeCompare(name(b, 'day')));
    const read = { label: texts.read, values: sorted.map(({ prompt_tokens = 0 }) => prompt_tokens) };
    const written = { label: texts.written, values: sorted.map(({ completion_tokens = 0 }) => completion_tokens) };
    return [sorted.map((one) => Date.parse(name(one, 'day')) / 1000), [read, written]];
  }, [data]);
  if (data.length === 0) return null;
  return (
    <Plot title={texts.tokens} about={t.amounts.days(times.length)} times={times} lines={lines} range={lastDays} />
  );
}

function name(one: Usage, group: Group): string {
  const value = one[group];
  return typeof value === 'string' ? value : t.common.none;
}

function columnsOf(group: Group): Column<Usage>[] {
  const number = (id: string, header: string, value: (one: Usage) => number, write = count): Column<Usage> => ({
    id,
    header,
    numeric: true,
    value,
    cell: (one) => write(value(one)),
  });
  const { columns } = texts;
  return [
    { id: group, header: texts.groups[group], value: (one) => name(one, group), cell: (one) => name(one, group) },
    number('requests', columns.requests, ({ requests }) => requests),
    number('failed', columns.failed, ({ failed = 0 }) => failed),
    number('read', columns.read, ({ prompt_tokens = 0 }) => prompt_tokens),
    number('written', columns.written, ({ completion_tokens = 0 }) => completion_tokens),
    number('first', columns.first, (one) => one.mean_first_token_ms ?? 0, milliseconds),
    number('whole', columns.whole, (one) => one.mean_total_ms ?? 0, milliseconds),
  ];
}

function Totals({ data, group }: { data: readonly Usage[]; group: Group }) {
  const columns = useMemo(() => columnsOf(group), [group]);
  const csv = useBlobUrl(useMemo(() => usageCsv(data, group), [data, group]));
  return (
    <>
      <DataTable
        label={texts.title(texts.groups[group])}
        rows={data}
        columns={columns}
        rowId={(one) => name(one, group)}
      />
      <p>
        <a className={buttonClass()} download={`usage-by-${group}.csv`} href={csv}>
          {texts.csv}
        </a>
      </p>
    </>
  );
}

function useBlobUrl(text: string): string {
  const url = useMemo(() => URL.createObjectURL(new Blob([text], { type: 'text/csv' })), [text]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  return url;
}

const COLUMNS = [
  'requests',
  'failed',
  'prompt_tokens',
  'completion_tokens',
  'mean_first_token_ms',
  'mean_total_ms',
] as const;

/** RFC 4180. A cell that a spreadsheet would take for a formula is kept from being one. */
function usageCsv(data: readonly Usage[], group: Group): string {
  const quoted = (text: string) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const rows = data.map((one) => [quoted(name(one, group)), ...COLUMNS.map((column) => String(one[column] ?? 0))]);
  return [[group, ...COLUMNS], ...rows].map((row) => `${row.join(',')}\r\n`).join('');
}
