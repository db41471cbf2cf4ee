import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { gateway } from '../../api/client.ts';
import type { paths } from '../../api/contract.ts';
import { count, exactTime, milliseconds } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Empty, Show, Tag } from '../../ui/feedback.tsx';
import { Section } from '../../ui/page.tsx';
import { Segments } from '../../ui/segmented-control.tsx';
import { type Column, DataTable } from '../../ui/table.tsx';

type List = paths['/admin/me/requests']['get']['responses'][200]['content']['application/json'];
type Request = List['data'][number];

const HOURS = 48;
const ROWS_MAX = 100;
const ROWS = 15;

const texts = t.usage.requests;

/** The user's own last requests, with the reason of each failure. */
export function LastRequests() {
  const [which, setWhich] = useState<'all' | 'failed'>('all');
  const requests = useQuery({
    queryKey: ['my-requests', which],
    queryFn: async ({ signal }) => {
      const query = { hours: HOURS, limit: ROWS_MAX, failed: which === 'failed' ? '1' : '0' } as const;
      return (await gateway.GET('/admin/me/requests', { params: { query }, signal })).data?.data ?? [];
    },
    placeholderData: keepPreviousData,
  });
  return (
    <Section
      title={texts.title}
      actions={
        <Segments
          label={texts.title}
          value={which}
          options={[
            { value: 'all', label: texts.all },
            { value: 'failed', label: texts.failed },
          ]}
          choose={setWhich}
        />
      }
    >
      <Show of={requests}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty>{which === 'failed' ? texts.noneFailed : texts.none}</Empty>
          ) : (
            <DataTable
              label={texts.title}
              rows={rows}
              columns={COLUMNS}
              rowId={({ request_id, at, node }) => `${request_id}${at}${node}`}
              pageSize={ROWS}
            />
          )
        }
      </Show>
    </Section>
  );
}

const { columns } = texts;
const tokens = (id: 'read' | 'written', value: (one: Request) => number): Column<Request> => ({
  id,
  header: columns[id],
  numeric: true,
  value,
  cell: (one) => count(value(one)),
});

const COLUMNS: readonly Column<Request>[] = [
  {
    id: 'when',
    header: columns.when,
    value: ({ at }) => at,
    cell: ({ at }) => <time dateTime={at}>{exactTime(at)}</time>,
  },
  { id: 'model', header: columns.model, value: ({ model }) => model, cell: ({ model }) => model },
  { id: 'end', header: columns.end, cell: (one) => <End request={one} /> },
  tokens('read', ({ prompt_tokens }) => prompt_tokens),
  tokens('written', ({ completion_tokens }) => completion_tokens),
  time('first', columns.first, ({ first_token_ms }) => first_token_ms),
  time('whole', columns.whole, ({ total_ms }) => total_ms),
  {
    id: 'node',
    header: columns.node,
    cell: ({ node, provider }) =>
      node === null ? (
        t.common.none
      ) : (
        <>
          {provider} <code className="text-xs">{node.slice(0, 8)}</code>
        </>
      ),
  },
];

function time(id: string, header: string, value: (one: Request) => number | null): Column<Request> {
  return {
    id,
    header,
    numeric: true,
    value: (one) => value(one) ?? 0,
    cell: (one) => {
      const ms = value(one);
      return ms === null ? t.common.none : milliseconds(ms);
    },
  };
}

function End({ request: { status, error, aborted, times } }: { request: Request }) {
  if (aborted && error === null) return <Tag kind="plain">{texts.aborted}</Tag>;
  if (error === null && status === null) return <Tag kind="plain">{texts.unknown}</Tag>;
  if (error === null && status !== null && status < 400) return <Tag kind="good">{texts.ok}</Tag>;
  const words = error === null ? texts.engine(status ?? 0) : (t.errorCodes[error] ?? error);
  return (
    <span className="inline-flex flex-wrap items-center gap-2">
      <span className="min-w-48 text-bad">{words}</span>
      {times > 1 && <Tag kind="plain">{texts.times(times)}</Tag>}
    </span>
  );
}
