import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { type FormEvent, useMemo, useState } from 'react';
import * as z from 'zod/mini';
import { askPages, tell } from '../api/client.ts';
import { type Key, keySchema } from '../api/schemas.ts';
import { dateTime } from '../parts/format.ts';
import { useMe } from '../parts/session.tsx';
import { isGood, Standing } from '../parts/standing.tsx';
import { useMinute } from '../parts/use-minute.ts';
import { t } from '../texts/index.ts';
import { Button } from '../ui/button.tsx';
import { Secret } from '../ui/copy.tsx';
import { Confirm, Dialog } from '../ui/dialog.tsx';
import { Empty, Failure, Show } from '../ui/feedback.tsx';
import { Field, Input } from '../ui/field.tsx';
import { Page } from '../ui/page.tsx';
import { type Column, DataTable, More } from '../ui/table.tsx';
import { useAction } from '../ui/use-action.ts';

const texts = t.keys;

export function Component() {
  const me = useMe();
  if (!me.login && me.role !== 'operator')
    return (
      <Page title={t.pages.keys}>
        <Empty>{texts.needsLogin}</Empty>
      </Page>
    );
  return <Keys />;
}

function Keys() {
  const now = useMinute();
  const [pages, setPages] = useState(1);
  const keys = useQuery({
    queryKey: ['keys', pages],
    queryFn: ({ signal }) => askPages(keySchema, '/admin/keys', pages, signal),
    placeholderData: keepPreviousData,
  });
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<Key>();
  const [secret, setSecret] = useState<string>();
  const { error, busy, act } = useAction<Key>((made) => {
    if (made.key !== undefined) setSecret(made.key);
    setMaking(false);
    void keys.refetch();
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: `act` is another at each drawing and does the same
  const columns = useMemo(() => {
    const rotate = ({ id }: Key) => act(tell(keySchema, 'POST', `/admin/keys/${id}/rotate`, {}));
    return columnsOf(now, rotate, setRevoking);
  }, [now]);
  return (
    <Page
      title={t.pages.keys}
      about={texts.about}
      actions={
        <Button kind="primary" onClick={() => setMaking(true)}>
          {texts.create}
        </Button>
      }
    >
      {secret !== undefined && <Secret title={texts.yours} secret={secret} close={() => setSecret(undefined)} />}
      {error !== undefined && !making && <Failure error={error} />}
      <Show of={keys}>
        {({ data, more }) =>
          data.length === 0 ? (
            <Empty>{texts.none}</Empty>
          ) : (
            <>
              <DataTable label={t.pages.keys} rows={data} columns={columns} rowId={({ id }) => id} pageSize={1000} />
              {more && <More onClick={() => setPages(pages + 1)} />}
            </>
          )
        }
      </Show>
      {making && (
        <Dialog title={texts.create} close={() => setMaking(false)}>
          <KeyForm busy={busy} submit={(body) => act(tell(keySchema, 'POST', '/admin/keys', body))} />
          {error !== undefined && <Failure error={error} />}
        </Dialog>
      )}
      {revoking && (
        <Confirm
          title={texts.revokeTitle(revoking.name)}
          action={texts.revoke}
          act={() => tell(z.unknown(), 'DELETE', `/admin/keys/${revoking.id}`).then(() => keys.refetch())}
          close={() => setRevoking(undefined)}
        >
          {texts.revokeFollows}
        </Confirm>
      )}
    </Page>
  );
}

function limitsOf({ limits }: Key): string {
  const { requests_per_minute, tokens_per_minute, concurrent_requests, tokens_per_month } = limits ?? {};
  const said = [
    requests_per_minute && texts.limits.requestsPerMinute(requests_per_minute),
    tokens_per_minute && texts.limits.tokensPerMinute(tokens_per_minute),
    concurrent_requests && texts.limits.atOnce(concurrent_requests),
    tokens_per_month && texts.limits.tokensPerMonth(tokens_per_month),
  ];
  return said.filter(Boolean).join(', ') || t.common.none;
}

function columnsOf(now: number, rotate: (key: Key) => void, revoke: (key: Key) => void): Column<Key>[] {
  const { columns } = texts;
  return [
    { id: 'name', header: columns.name, value: ({ name }) => name, cell: ({ name }) => name },
    { id: 'prefix', header: columns.prefix, cell: ({ prefix }) => <code className="text-xs">{prefix}…</code> },
    { id: 'limits', header: columns.limits, cell: limitsOf },
    {
      id: 'trusted',
      header: columns.trusted,
      cell: (key) => key.trusted_providers?.join(', ') ?? texts.trustedDefault,
    },
    {
      id: 'used',
      header: columns.used,
      value: (key) => key.last_used_at ?? '',
      cell: (key) => dateTime(key.last_used_at),
    },
    {
      id: 'expires',
      header: columns.expires,
      value: (key) => key.expires_at ?? '',
      cell: (key) => dateTime(key.expires_at),
    },
    { id: 'state', header: columns.state, cell: (key) => <Standing of={key} now={now} /> },
    {
      id: 'actions',
      header: columns.actions,
      cell: (key) =>
        isGood(key, now) && (
          <div className="flex gap-2">
            <Button size="small" onClick={() => rotate(key)} aria-label={texts.rotateOne(key.name)}>
              {texts.rotate}
            </Button>
            <Button size="small" onClick={() => revoke(key)} aria-label={texts.revokeOne(key.name)}>
              {texts.revoke}
            </Button>
          </div>
        ),
    },
  ];
}

function KeyForm({ submit, busy }: { submit: (body: unknown) => void; busy: boolean }) {
  const { form } = texts;
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    submit(keyBody(new FormData(event.currentTarget)));
  };
  return (
    <form onSubmit={onSubmit} className="grid gap-4 sm:grid-cols-2">
      <Field label={form.name} hint={form.nameHint} className="sm:col-span-2">
        {(id) => <Input id={id} name="name" required maxLength={200} />}
      </Field>
      <Field label={form.requestsPerMinute}>{(id) => <Input id={id} name="rpm" type="number" min="1" />}</Field>
      <Field label={form.tokensPerMinute}>{(id) => <Input id={id} name="tpm" type="number" min="1" />}</Field>
      <Field label={form.atOnce}>{(id) => <Input id={id} name="once" type="number" min="1" />}</Field>
      <Field label={form.tokensPerMonth}>{(id) => <Input id={id} name="month" type="number" min="1" />}</Field>
      <Field label={form.trusted} hint={form.trustedHint}>
        {(id) => <Input id={id} name="trusted" placeholder="eth, psi@peer" />}
      </Field>
      <Field label={form.expires}>{(id) => <Input id={id} name="expires" type="date" />}</Field>
      <div className="flex justify-end sm:col-span-2">
        <Button type="submit" kind="primary" disabled={busy}>
          {t.common.create}
        </Button>
      </div>
    </form>
  );
}

/** What the form says, as the gateway wants it; what is empty is left out. */
function keyBody(form: FormData): Record<string, unknown> {
  const text = (name: string) => String(form.get(name) ?? '').trim();
  const number = (name: string) => (text(name) === '' ? undefined : Number(text(name)));
  const limits = {
    requests_per_minute: number('rpm'),
    tokens_per_minute: number('tpm'),
    concurrent_requests: number('once'),
    tokens_per_month: number('month'),
  };
  const trusted = text('trusted')
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');
  return {
    name: text('name'),
    ...(Object.values(limits).some((one) => one !== undefined) ? { limits } : {}),
    ...(trusted.length > 0 ? { trusted_providers: trusted } : {}),
    ...(text('expires') === '' ? {} : { expires_at: `${text('expires')}T23:59:59Z` }),
  };
}
