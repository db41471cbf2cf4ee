import { useQueryClient } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { gateway } from '../../api/client.ts';
import { type Provider, useResources } from '../../api/resources.ts';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { t } from '../../texts/index.ts';
import { language } from '../../texts/language.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm, Dialog } from '../../ui/dialog.tsx';
import { Tag } from '../../ui/feedback.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { Checkbox, Form } from '../../ui/form.tsx';
import { type FilledFields, hasMembers } from '../../ui/form-values.ts';
import { Section } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';

const texts = t.providers;

type Asked = { kind: 'create' } | { kind: 'edit' | 'delete'; provider: Provider };

/** The list of providers. Only operators see it. */
export function ProviderList({ newToken }: { newToken: (provider: string) => void }) {
  const providers = useResources('providers', (query, signal) =>
    gateway.GET('/admin/providers', { params: { query }, signal }),
  );
  const queries = useQueryClient();
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  const again = () =>
    Promise.all([providers.refetch(), queries.invalidateQueries({ queryKey: ['options', 'providers'] })]);
  const columns = useMemo(() => columnsOf((kind, provider) => setAsked({ kind, provider }), newToken), [newToken]);
  return (
    <Section title={texts.title} actions={<Button onClick={() => setAsked({ kind: 'create' })}>{texts.create}</Button>}>
      <ResourceList
        label={texts.title}
        of={providers}
        columns={columns}
        none={texts.none}
        words={({ name, id }) => `${name} ${id}`}
        rowId={({ id }) => id}
      />
      {asked?.kind === 'create' && <ProviderDialog provider={undefined} saved={again} close={close} />}
      {asked?.kind === 'edit' && <ProviderDialog provider={asked.provider} saved={again} close={close} />}
      {asked?.kind === 'delete' && (
        <Confirm
          title={texts.deleteTitle(asked.provider.name)}
          action={texts.delete}
          act={() =>
            gateway.DELETE('/admin/providers/{id}', { params: { path: { id: asked.provider.id } } }).then(again)
          }
          close={close}
        >
          {texts.deleteFollows}
        </Confirm>
      )}
    </Section>
  );
}

function columnsOf(
  ask: (kind: 'edit' | 'delete', provider: Provider) => void,
  newToken: (provider: string) => void,
): Column<Provider>[] {
  const { columns } = texts;
  return [
    {
      id: 'name',
      header: columns.name,
      value: ({ name }) => name,
      cell: ({ name, id }) => (
        <span className="flex flex-col">
          {name}
          {name !== id && <code className="font-normal text-muted text-xs">{id}</code>}
        </span>
      ),
    },
    {
      id: 'trusted',
      header: columns.trusted,
      cell: ({ trusted_by_default: trusted }) => (trusted ? t.common.yes : t.common.no),
    },
    {
      id: 'most',
      header: columns.most,
      numeric: true,
      cell: ({ max_nodes: most }) => most?.toLocaleString(language) ?? texts.mostDefault,
    },
    {
      id: 'state',
      header: columns.state,
      cell: ({ deleted_at }) =>
        deleted_at === null ? <Tag kind="good">{t.admin.active}</Tag> : <Tag kind="plain">{texts.deleted}</Tag>,
    },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: (provider) => (
        <RowMenu
          name={provider.name}
          actions={
            provider.deleted_at === null
              ? [
                  // Offered only for this institution's providers: nodes of a peer institution join with tokens of that
                  // institution.
                  !provider.id.includes('@') && { label: texts.token, act: () => newToken(provider.id) },
                  { label: t.admin.edit, act: () => ask('edit', provider) },
                  { label: texts.delete, act: () => ask('delete', provider), danger: true },
                ]
              : []
          }
        />
      ),
    },
  ];
}

interface ProviderDialogProps {
  /** The edited provider; undefined: a new one is created. */
  provider: Provider | undefined;
  saved: () => unknown;
  close: () => void;
}

function bodyOf(filled: FilledFields) {
  const [trusted_by_default, max_nodes] = [filled.checked('trusted'), filled.number('most')];
  return { name: filled.text('name'), trusted_by_default, max_nodes };
}

function ProviderDialog({ provider, saved, close }: ProviderDialogProps) {
  const { form } = texts;
  const submit = async (filled: FilledFields) => {
    if (provider === undefined) {
      const { name, ...common } = bodyOf(filled);
      const body = { id: filled.text('id'), ...(name !== '' && { name }), ...common };
      await gateway.POST('/admin/providers', { body });
    } else {
      const body = filled.changes(bodyOf);
      if (hasMembers(body))
        await gateway.PATCH('/admin/providers/{id}', { params: { path: { id: provider.id } }, body });
    }
    await saved();
  };
  return (
    <Dialog title={provider === undefined ? texts.create : texts.editTitle(provider.id)} close={close}>
      <Form action={provider === undefined ? t.common.create : t.common.save} submit={submit} close={close}>
        {provider === undefined && (
          <Field label={form.id} hint={form.idHint}>
            {(id) => <Input id={id} name="id" required maxLength={128} spellCheck={false} />}
          </Field>
        )}
        <Field label={form.name}>
          {(id) => (
            <Input
              id={id}
              name="name"
              maxLength={200}
              required={provider !== undefined}
              defaultValue={provider?.name ?? ''}
            />
          )}
        </Field>
        <Field label={form.most} hint={form.mostHint}>
          {(id) => <Input id={id} name="most" type="number" min="1" defaultValue={provider?.max_nodes ?? ''} />}
        </Field>
        <Checkbox
          name="trusted"
          label={form.trusted}
          hint={form.trustedHint}
          defaultChecked={provider?.trusted_by_default ?? true}
        />
      </Form>
    </Dialog>
  );
}
