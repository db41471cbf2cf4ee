import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { Link } from 'wouter';
import { gateway } from '../../api/client.ts';
import type { paths } from '../../api/contract.ts';
import { catalogueOf } from '../../parts/model-catalog.ts';
import { Reference, useNames } from '../../parts/reference-select.tsx';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { useLive, useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Button, buttonClass } from '../../ui/button.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { Tag } from '../../ui/feedback.tsx';
import { Field, Input, Textarea } from '../../ui/field.tsx';
import { Checkbox, WIDE } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import { type FilledFields, hasMembers } from '../../ui/form-values.ts';
import { Section } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';

const texts = t.access.catalogue;

type Entry = paths['/admin/catalogue']['get']['responses'][200]['content']['application/json']['data'][number];

/** The catalog of models with their terms; operators change it. */
export function Catalogue() {
  const isOperator = useMe().role === 'operator';
  const owners = useNames('users', isOperator);
  const entries = useQuery({
    queryKey: ['catalogue'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/catalogue', { signal })).data?.data ?? [],
  });
  const { nodes, connection, moves } = useLive();
  const [edited, setEdited] = useState<Entry | 'new'>();
  const [removed, setRemoved] = useState<Entry>();
  const columns = useMemo(() => {
    const served = catalogueOf(nodes.values()).flatMap(({ id, serving: n }) => (n > 0 ? [id] : []));
    // `moves` is 0 until the first list of nodes has arrived.
    const serving = connection === 'live' && moves > 0 ? new Set(served) : undefined;
    return columnsOf({ isOperator, owners, serving, edit: setEdited, remove: setRemoved });
  }, [isOperator, owners, nodes, connection, moves]);
  return (
    <Section
      title={texts.title}
      actions={
        isOperator ? (
          <Button onClick={() => setEdited('new')}>{texts.add}</Button>
        ) : (
          <Link href="/models" className={buttonClass({})}>
            {texts.seeModels}
          </Link>
        )
      }
    >
      <ResourceList
        label={texts.title}
        of={{ data: entries.data, error: entries.error, refetch: entries.refetch, showMore: undefined }}
        columns={columns}
        none={texts.none}
        words={({ id, successor }) => `${id} ${successor ?? ''}`}
        rowId={({ id }) => id}
      />
      {edited !== undefined && (
        <EntryDialog
          entry={edited === 'new' ? undefined : edited}
          stored={async () => (await entries.refetch()).data?.find(({ id }) => edited !== 'new' && id === edited.id)}
          saved={() => entries.refetch()}
          close={() => setEdited(undefined)}
        />
      )}
      {removed && (
        <Confirm
          title={texts.removeTitle(removed.id)}
          action={texts.remove}
          act={() =>
            gateway
              .DELETE('/admin/catalogue/{id}', { params: { path: { id: removed.id } } })
              .then(() => entries.refetch())
          }
          close={() => setRemoved(undefined)}
        >
          {texts.removeFollows}
        </Confirm>
      )}
    </Section>
  );
}

interface Rights {
  isOperator: boolean;
  owners: (id: string | null) => string;
  /** Models that a node currently serves; undefined: not known. */
  serving: ReadonlySet<string> | undefined;
  edit: (entry: Entry) => void;
  remove: (entry: Entry) => void;
}

const day = (at: string) => at.slice(0, 10);

function columnsOf({ isOperator, owners, serving, edit, remove }: Rights): Column<Entry>[] {
  const { columns } = texts;
  return [
    {
      id: 'model',
      header: columns.model,
      value: ({ id }) => id,
      cell: ({ id }) => <span className="[overflow-wrap:anywhere]">{id}</span>,
    },
    { id: 'owner', header: columns.owner, cell: ({ owner_id }) => owners(owner_id) },
    {
      id: 'access',
      header: columns.access,
      cell: ({ restricted, access }) =>
        restricted ? (
          access === null ? (
            texts.restricted
          ) : (
            <code className="text-xs">{access.join(', ')}</code>
          )
        ) : (
          texts.everybody
        ),
    },
    {
      id: 'on',
      header: columns.on,
      cell: ({ always_on, id }) =>
        always_on &&
        serving !== undefined &&
        (serving.has(id) ? <Tag kind="good">{texts.served}</Tag> : <Tag kind="bad">{texts.notServed}</Tag>),
    },
    {
      id: 'ends',
      header: columns.ends,
      cell: ({ deprecated_at, sunset_at, successor }) =>
        [
          deprecated_at !== null && texts.deprecatedOn(day(deprecated_at)),
          sunset_at !== null && texts.endsOn(day(sunset_at)),
          successor !== null && texts.followedBy(successor),
        ]
          .filter((word) => word !== false)
          .join(', ') || t.common.none,
    },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: (entry) =>
        isOperator && (
          <RowMenu
            name={entry.id}
            actions={[
              { label: texts.edit, act: () => edit(entry) },
              { label: texts.remove, act: () => remove(entry), danger: true },
            ]}
          />
        ),
    },
  ];
}

function bodyOf(filled: FilledFields) {
  const date = (name: string) => (filled.text(name) === '' ? null : `${filled.text(name)}T00:00:00Z`);
  return {
    owner_id: filled.optional('owner'),
    access: filled.list('access') ?? (filled.checked('operators') ? [] : null),
    always_on: filled.checked('always_on'),
    deprecated_at: date('deprecated'),
    sunset_at: date('sunset'),
    successor: filled.optional('successor'),
  };
}

interface EntryDialogProps {
  /** The edited entry; undefined: a new one is created. */
  entry: Entry | undefined;
  /** Reads the currently stored entry. */
  stored: () => Promise<Entry | undefined>;
  saved: () => unknown;
  close: () => void;
}

function EntryDialog({ entry, stored, saved, close }: EntryDialogProps) {
  const submit = async (filled: FilledFields) => {
    const body = entry === undefined ? bodyOf(filled) : await filled.changesOver(bodyOf, stored);
    const id = entry?.id ?? filled.text('model');
    if (hasMembers(body)) await gateway.PATCH('/admin/catalogue/{id}', { params: { path: { id } }, body });
  };
  return (
    <FormDialog
      title={entry === undefined ? texts.add : texts.editTitle(entry.id)}
      action={t.common.save}
      submit={submit}
      saved={saved}
      close={close}
    >
      {entry === undefined && (
        <Field label={texts.model} className={WIDE}>
          {(id) => <Input id={id} name="model" required maxLength={256} spellCheck={false} />}
        </Field>
      )}
      <Reference
        of="users"
        name="owner"
        label={texts.owner}
        hint={texts.ownerHint}
        defaultValue={entry?.owner_id ?? null}
      />
      <Field label={texts.successor}>
        {(id) => <Input id={id} name="successor" maxLength={256} defaultValue={entry?.successor ?? ''} />}
      </Field>
      <Field label={texts.access} hint={texts.accessHint} className={WIDE}>
        {(id) => <Textarea id={id} name="access" rows={2} defaultValue={entry?.access?.join(', ') ?? ''} />}
      </Field>
      <Checkbox name="operators" label={texts.operatorsAlone} defaultChecked={entry?.access?.length === 0} />
      <Checkbox
        name="always_on"
        label={texts.alwaysOn}
        hint={texts.alwaysOnHint}
        defaultChecked={entry?.always_on ?? false}
      />
      <Field label={texts.deprecated}>
        {(id) => (
          <Input id={id} name="deprecated" type="date" defaultValue={entry?.deprecated_at?.slice(0, 10) ?? ''} />
        )}
      </Field>
      <Field label={texts.sunset} hint={texts.sunsetHint}>
        {(id) => <Input id={id} name="sunset" type="date" defaultValue={entry?.sunset_at?.slice(0, 10) ?? ''} />}
      </Field>
    </FormDialog>
  );
}
