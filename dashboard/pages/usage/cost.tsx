import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { basePath } from '../../api/base-path.ts';
import { gateway } from '../../api/client.ts';
import type { paths } from '../../api/contract.ts';
import { count } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { dateLocale } from '../../texts/language.ts';
import { buttonClass } from '../../ui/button.tsx';
import { Empty, Failure } from '../../ui/feedback.tsx';
import { Section } from '../../ui/page.tsx';
import { Segments } from '../../ui/segmented-control.tsx';
import { type Column, DataTable } from '../../ui/table.tsx';

type Statement = paths['/admin/statements']['get']['responses'][200]['content']['application/json'];
type Line = Statement['lines'][number];

const texts = t.usage;

/** Shows what the user's own usage of a month costs. Hidden if the gateway has no prices. */
export function Cost() {
  const months = useMemo(() => lastMonths(new Date()), []);
  const [month, setMonth] = useState(months[0]);
  const statement = useQuery({
    queryKey: ['my-statement', month],
    queryFn: async ({ signal }) => {
      const { data } = await gateway.GET('/admin/statements', { params: { query: { own: 'yes', month } }, signal });
      return data;
    },
  });
  if (statement.error) return <Failure error={statement.error} retry={() => neverRejects(statement.refetch())} />;
  const { data } = statement;
  if (data === undefined || data.unit === null) return null;
  return (
    <Section
      title={texts.cost(`${data.total} ${data.unit}`)}
      actions={
        <Segments
          label={texts.month}
          value={month}
          options={months.map((value) => ({ value, label: monthName(value) }))}
          choose={setMonth}
        />
      }
    >
      {data.lines.length === 0 ? <Empty>{texts.none}</Empty> : <Lines lines={data.lines} unit={data.unit} />}
      <p>
        <a className={buttonClass()} href={`${basePath}/admin/statements?own=yes&month=${month}&format=csv`} download>
          {texts.csv}
        </a>
      </p>
    </Section>
  );
}

function Lines({ lines, unit }: { lines: readonly Line[]; unit: string }) {
  const columns = useMemo(() => columnsOf(unit), [unit]);
  return <DataTable label={texts.costByModel} rows={lines} columns={columns} rowId={idOf} />;
}

const idOf = ({ project, model, provider }: Line) => JSON.stringify([project, model, provider]);

function columnsOf(unit: string): Column<Line>[] {
  const text = (id: string, header: string, value: (line: Line) => string | null): Column<Line> => ({
    id,
    header,
    value: (line) => value(line) ?? '',
    cell: (line) => value(line) ?? t.common.none,
  });
  const number = (id: string, header: string, value: (line: Line) => number): Column<Line> => ({
    id,
    header,
    numeric: true,
    value,
    cell: (line) => count(value(line)),
  });
  const { columns, groups } = texts;
  return [
    text('project', groups.project, ({ project_name: name, project }) => name ?? project),
    text('model', groups.model, ({ model }) => model),
    text('provider', groups.provider, ({ provider }) => provider),
    number('requests', columns.requests, ({ requests }) => requests),
    number('read', columns.read, ({ prompt_tokens: tokens }) => tokens),
    number('written', columns.written, ({ completion_tokens: tokens }) => tokens),
    number('gpu', columns.gpu, ({ gpu_seconds: seconds }) => seconds / 3_600),
    { id: 'amount', header: unit, numeric: true, value: ({ amount }) => Number(amount), cell: ({ amount }) => amount },
  ];
}

/** Returns the current month and the month before, UTC, as the gateway counts. */
function lastMonths(now: Date): [string, string] {
  const nameOf = (monthsAgo: number) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - monthsAgo)).toISOString().slice(0, 7);
  return [nameOf(0), nameOf(1)];
}

function monthName(month: string): string {
  return new Date(`${month}-01T00:00:00Z`).toLocaleString(dateLocale, {
    month: 'long',
    year: 'numeric',
    timeZone: 'UTC',
  });
}
