import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { type FormEvent, useMemo, useState } from 'react';
import * as z from 'zod/mini';
import { askPages, tell } from '../api/client.ts';
import { type JoinToken, joinTokenSchema } from '../api/schemas.ts';
import { dateTime } from '../parts/format.ts';
import { useMe } from '../parts/session.tsx';
import { Standing } from '../parts/standing.tsx';
import { useMinute } from '../parts/use-minute.ts';
import { Wizard } from '../parts/wizard.tsx';
import { t } from '../texts/index.ts';
import { Button } from '../ui/button.tsx';
import { Secret } from '../ui/copy.tsx';
import { Confirm, Dialog } from '../ui/dialog.tsx';
import { Empty, Failure, Show } from '../ui/feedback.tsx';
import { Field, Input } from '../ui/field.tsx';
import { Page, Section } from '../ui/page.tsx';
import { type Column, DataTable, More } from '../ui/table.tsx';
import { useAction } from '../ui/use-action.ts';

const texts = t.joinTokens;

export function Component() {
  const { provider } = useMe();
  const [pages, setPages] = useState(1);
  const tokens = useQuery({
    queryKey: ['join-tokens', pages],
    queryFn: ({ signal }) => askPages(joinTokenSchema, '/admin/join-tokens', pages, signal),
    placeholderData: keepPreviousData,
  });
  const now = useMinute();
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<JoinToken>();
  const [secret, setSecret] = useState<string>();
  const { error, busy, act } = useAction<JoinToken>((made) => {
    if (made.token !== undefined) setSecret(made.token);
    setMaking(false);
    void tokens.refetch();
  });
  const columns = useMemo(() => columnsOf(now, setRevoking), [now]);
  return (
    <Page title={t.pages.providers} about={texts.about}>
      <Section
        title={texts.title}
        actions={
          <Button kind="primary" onClick={() => setMaking(true)}>
            {texts.create}
          </Button>
        }
      >
        {secret !== undefined && <Secret title={texts.yours} secret={secret} close={() => setSecret(undefined)} />}
        {error !== undefined && !making && <Failure error={error} />}
        <Show of={tokens}>
          {({ data, more }) =>
            data.length === 0 ? (
              <Empty>{texts.none}</Empty>
            ) : (
              <>
                <DataTable label={texts.title} rows={data} columns={columns} rowId={({ id }) => id} pageSize={1000} />
                {more && <More onClick={() => setPages(pages + 1)} />}
              </>
            )
          }
        </Show>
      </Section>
      <Section title={t.wizard.title}>
        <Wizard gateway={location.origin} />
      </Section>
      {making && (
        <Dialog title={texts.create} close={() => setMaking(false)}>
          <TokenForm
            provider={provider}
            busy={busy}
            submit={(body) => act(tell(joinTokenSchema, 'POST', '/admin/join-tokens', body))}
          />
          {error !== undefined && <Failure error={error} />}
        </Dialog>
      )}
      {revoking && (
        <Confirm
          title={texts.revokeTitle(revoking.name)}
          action={texts.revoke}
          act={() => tell(z.unknown(), 'DELETE', `/admin/join-tokens/${revoking.id}`).then(() => tokens.refetch())}
          close={() => setRevoking(undefined)}
        >
          {texts.revokeFollows}
        </Confirm>
      )}
    </Page>
  );
}

function columnsOf(now: number, revoke: (token: JoinToken) => void): Column<JoinToken>[] {
  const { columns } = texts;
  return [
    { id: 'name', header: columns.name, value: ({ name }) => name, cell: ({ name }) => name },
    { id: 'provider', header: columns.provider, value: (one) => one.provider, cell: (one) => one.provider },
    {
      id: 'cluster',
      header: columns.cluster,
      value: (one) => one.cluster ?? '',
      cell: (one) => one.cluster ?? texts.any,
    },
    { id: 'prefix', header: columns.prefix, cell: ({ prefix }) => <code className="text-xs">{prefix}…</code> },
    {
      id: 'nodes',
      header: columns.nodes,
      numeric: true,
      value: ({ nodes }) => nodes,
      cell: ({ nodes, max_nodes }) => (max_nodes === null ? nodes : texts.of(nodes, max_nodes)),
    },
    { id: 'expires', header: columns.expires, cell: (one) => dateTime(one.expires_at) },
    {
      id: 'state',
      header: columns.state,
      cell: (one) => <Standing of={one} now={now} usedUp={one.max_nodes !== null && one.nodes >= one.max_nodes} />,
    },
    {
      id: 'actions',
      header: columns.actions,
      cell: (one) =>
        one.revoked_at === null && (
          <Button size="small" aria-label={texts.revokeOne(one.name)} onClick={() => revoke(one)}>
            {texts.revoke}
          </Button>
        ),
    },
  ];
}

const ID = '[a-z0-9][a-z0-9\\-]{0,62}';

interface TokenFormProps {
  provider: string | null;
  busy: boolean;
  submit: (body: unknown) => void;
}

function TokenForm({ provider, busy, submit }: TokenFormProps) {
  const { form: words } = texts;
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? '').trim();
    submit({
      name: text('name'),
      provider: text('provider'),
      cluster: text('cluster') || null,
      max_nodes: Number(text('max')) || undefined,
    });
  };
  return (
    <form onSubmit={onSubmit} className="flex flex-col gap-4">
      <Field label={words.name}>{(id) => <Input id={id} name="name" required maxLength={200} />}</Field>
      <Field label={words.provider} hint={words.providerHint}>
        {(id) => (
          <Input
            id={id}
            name="provider"
            required
            pattern={ID}
            defaultValue={provider ?? ''}
            readOnly={provider !== null}
          />
        )}
      </Field>
      <Field label={words.cluster} hint={words.clusterHint}>
        {(id) => <Input id={id} name="cluster" pattern={ID} />}
      </Field>
      <Field label={words.most} hint={words.mostHint}>
        {(id) => <Input id={id} name="max" type="number" min="1" />}
      </Field>
      <div className="flex justify-end">
        <Button type="submit" kind="primary" disabled={busy}>
          {t.common.create}
        </Button>
      </div>
    </form>
  );
}
