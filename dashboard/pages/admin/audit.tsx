import { useMemo, useState } from 'react';
import { gateway } from '../../api/client.ts';
import { type AuditEntry, useResources } from '../../api/resources.ts';
import { exactTime } from '../../parts/format.ts';
import { useNames } from '../../parts/reference-select.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Empty, Show } from '../../ui/feedback.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { FilledFields } from '../../ui/form-values.ts';
import { Page } from '../../ui/page.tsx';
import { type Column, DataTable, More } from '../../ui/table.tsx';
import { type Change, changesOf } from './audit-changes.ts';

const texts = t.audit;
/** Number of changed fields that are shown of one entry. The entry of a new project has twenty. */
const CHANGES_SHOWN = 4;

interface Filter {
  object: string;
  actor: string;
}

export default function Audit() {
  const [filter, setFilter] = useState<Filter>({ object: '', actor: '' });
  const { object, actor } = filter;
  const entries = useResources(`audit ${object} ${actor}`, ({ limit, after }, signal) =>
    gateway.GET('/admin/audit', {
      params: {
        query: {
          limit,
          ...(after !== undefined && { after: Number(after) }),
          ...(object !== '' && { object }),
          ...(actor !== '' && { actor }),
        },
      },
      signal,
    }),
  );
  const userName = useNames('users');
  const columns = useMemo(() => columnsOf(userName), [userName]);
  return (
    <Page title={t.admin.tabs.audit} about={texts.about}>
      <form
        className="flex flex-wrap items-end gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          const filled = new FilledFields(new FormData(event.currentTarget));
          setFilter({ object: filled.text('object'), actor: filled.text('actor') });
        }}
      >
        <Field label={texts.of} className="w-72">
          {(id) => <Input id={id} name="object" placeholder={texts.ofHint} />}
        </Field>
        <Field label={texts.by} className="w-60">
          {(id) => <Input id={id} name="actor" placeholder={texts.byHint} />}
        </Field>
        <Button type="submit">{texts.search}</Button>
      </form>
      <Show of={entries}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty>{object === '' && actor === '' ? texts.none : texts.noneFound}</Empty>
          ) : (
            <>
              <DataTable
                label={t.admin.tabs.audit}
                rows={rows}
                columns={columns}
                rowId={({ id }) => String(id)}
                pageSize={1000}
              />
              {entries.showMore !== undefined && <More onClick={entries.showMore} />}
            </>
          )
        }
      </Show>
    </Page>
  );
}

/** The key that the gateway made for its operator at its first start. */
const BOOTSTRAP = 'bootstrap';

function columnsOf(userName: (id: string) => string): Column<AuditEntry>[] {
  const { columns } = texts;
  return [
    {
      id: 'when',
      header: columns.when,
      cell: ({ at }) => (
        <time dateTime={at} className="whitespace-nowrap font-normal">
          {exactTime(at)}
        </time>
      ),
    },
    {
      id: 'who',
      header: columns.who,
      cell: ({ actor }) => (actor === BOOTSTRAP ? t.batches.operatorsKey : userName(actor)),
    },
    { id: 'what', header: columns.what, cell: ({ action }) => <code className="text-xs">{action}</code> },
    {
      id: 'target',
      header: columns.target,
      cell: ({ target }) => <code className="text-xs [overflow-wrap:anywhere]">{target}</code>,
    },
    { id: 'changes', header: columns.changes, cell: ({ before, after }) => <Changes of={changesOf(before, after)} /> },
  ];
}

function Changes({ of }: { of: readonly Change[] }) {
  const more = of.length - CHANGES_SHOWN;
  return (
    <ul className="flex min-w-60 flex-col gap-0.5 text-xs">
      {of.slice(0, CHANGES_SHOWN).map(({ field, before, after }) => (
        <li key={field} className="[overflow-wrap:anywhere]">
          <span className="text-muted">{field}:</span> {before === undefined ? after : texts.to(before, after)}
        </li>
      ))}
      {more > 0 && <li className="text-muted">{texts.more(more)}</li>}
    </ul>
  );
}
