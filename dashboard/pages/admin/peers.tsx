import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { gateway } from '../../api/client.ts';
import type { Peer } from '../../api/resources.ts';
import { dateTime } from '../../parts/format.ts';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { WIDE } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import type { FilledFields } from '../../ui/form-values.ts';
import { Page } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';

const texts = t.peers;

export default function Peers() {
  const peers = useQuery({
    queryKey: ['peers'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/peers', { signal })).data?.data ?? [],
  });
  const [adding, setAdding] = useState(false);
  const [removed, setRemoved] = useState<Peer>();
  const columns = useMemo(() => columnsOf(setRemoved), []);
  return (
    <Page
      title={t.admin.tabs.peers}
      about={texts.about}
      actions={
        <Button kind="primary" onClick={() => setAdding(true)}>
          {texts.create}
        </Button>
      }
    >
      <ResourceList
        label={t.admin.tabs.peers}
        of={{ data: peers.data, error: peers.error, refetch: peers.refetch, showMore: undefined }}
        columns={columns}
        none={texts.none}
        words={({ name, url, issuer }) => `${name} ${url ?? ''} ${issuer ?? ''}`}
        rowId={({ name }) => name}
      />
      {adding && <PeerDialog saved={() => peers.refetch()} close={() => setAdding(false)} />}
      {removed && (
        <Confirm
          title={texts.removeTitle(removed.name)}
          action={texts.remove}
          act={() =>
            gateway
              .DELETE('/admin/peers/{name}', { params: { path: { name: removed.name } } })
              .then(() => peers.refetch())
          }
          close={() => setRemoved(undefined)}
        >
          {texts.removeFollows}
        </Confirm>
      )}
    </Page>
  );
}

function columnsOf(remove: (peer: Peer) => void): Column<Peer>[] {
  const { columns } = texts;
  return [
    { id: 'name', header: columns.name, value: ({ name }) => name, cell: ({ name }) => name },
    { id: 'url', header: columns.url, cell: ({ url }) => url ?? t.common.none },
    { id: 'issuer', header: columns.issuer, cell: ({ issuer }) => <code className="text-xs">{issuer}</code> },
    {
      id: 'added',
      header: columns.added,
      value: ({ created_at }) => created_at,
      nowrap: true,
      cell: ({ created_at }) => dateTime(created_at),
    },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: (peer) => (
        <RowMenu name={peer.name} actions={[{ label: texts.remove, act: () => remove(peer), danger: true }]} />
      ),
    },
  ];
}

function PeerDialog({ saved, close }: { saved: () => unknown; close: () => void }) {
  const { form } = texts;
  const submit = async (filled: FilledFields) => {
    const body = { name: filled.text('name'), root: filled.text('root'), url: filled.optional('url') };
    await gateway.POST('/admin/peers', { body });
  };
  return (
    <FormDialog title={texts.create} action={texts.create} submit={submit} saved={saved} close={close}>
      <Field label={form.name} hint={form.nameHint} className={WIDE}>
        {(id) => <Input id={id} name="name" required pattern="[a-z0-9][a-z0-9\-]{0,62}" />}
      </Field>
      <Field label={form.root} hint={form.rootHint} className={WIDE}>
        {(id) => <Input id={id} name="root" required maxLength={64} spellCheck={false} autoComplete="off" />}
      </Field>
      <Field label={form.url} hint={form.urlHint} className={WIDE}>
        {(id) => <Input id={id} name="url" type="url" placeholder="https://" />}
      </Field>
    </FormDialog>
  );
}
