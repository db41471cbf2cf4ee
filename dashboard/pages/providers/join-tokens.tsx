import { useQueryClient } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { gatewayUrl } from '../../api/base-path.ts';
import { gateway } from '../../api/client.ts';
import { type JoinToken, useResources } from '../../api/resources.ts';
import { CredentialStatus } from '../../parts/credential-status.tsx';
import { dateTime } from '../../parts/format.ts';
import { useOptions } from '../../parts/reference-select.tsx';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { useMe } from '../../parts/session.tsx';
import { useMinute } from '../../parts/use-minute.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Secret } from '../../ui/copy.tsx';
import { Confirm, Dialog } from '../../ui/dialog.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { Form } from '../../ui/form.tsx';
import type { FilledFields } from '../../ui/form-values.ts';
import { Section } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';

const texts = t.joinTokens;
const ID = '[a-z0-9][a-z0-9\\-]{0,62}';

interface JoinTokensProps {
  /** The provider for which a new token is requested; undefined: none. */
  asked: string | undefined;
  ask: (provider: string | undefined) => void;
}

export function JoinTokens({ asked, ask }: JoinTokensProps) {
  const { provider } = useMe();
  const tokens = useResources('join-tokens', (query, signal) =>
    gateway.GET('/admin/join-tokens', { params: { query }, signal }),
  );
  const now = useMinute();
  const [revoked, setRevoked] = useState<JoinToken>();
  const [secret, setSecret] = useState<string>();
  const columns = useMemo(() => columnsOf(now, setRevoked), [now]);
  const queries = useQueryClient();
  // Reads the providers again too, because a token for a new provider creates the provider.
  const again = () =>
    Promise.all([
      tokens.refetch(),
      queries.invalidateQueries({ queryKey: ['providers'] }),
      queries.invalidateQueries({ queryKey: ['options', 'providers'] }),
    ]);
  return (
    <Section
      title={texts.title}
      actions={
        <Button kind="primary" onClick={() => ask(provider ?? '')}>
          {texts.create}
        </Button>
      }
    >
      {secret !== undefined && (
        <Secret
          title={texts.yours}
          secret={secret}
          command={{ label: texts.install, text: installLine(secret) }}
          close={() => setSecret(undefined)}
        />
      )}
      <ResourceList
        label={texts.title}
        of={tokens}
        columns={columns}
        none={texts.none}
        words={({ name, provider: of, cluster }) => `${name} ${of} ${cluster ?? ''}`}
        rowId={({ id }) => id}
      />
      {asked !== undefined && (
        <TokenDialog
          provider={asked}
          made={(token) => {
            setSecret(token);
            return again();
          }}
          close={() => ask(undefined)}
        />
      )}
      {revoked && (
        <Confirm
          title={texts.revokeTitle(revoked.name)}
          action={texts.revoke}
          act={() => gateway.DELETE('/admin/join-tokens/{id}', { params: { path: { id: revoked.id } } }).then(again)}
          close={() => setRevoked(undefined)}
        >
          {texts.revokeFollows}
        </Confirm>
      )}
    </Section>
  );
}

/** The line that installs an agent. A token has only letters, digits and dashes, so it needs no quotes. */
function installLine(token: string): string {
  return `curl -fsSL ${gatewayUrl}/install | OTELA_TOKEN=${token} sh`;
}

function columnsOf(now: number, revoke: (token: JoinToken) => void): Column<JoinToken>[] {
  const { columns } = texts;
  return [
    {
      id: 'name',
      header: columns.name,
      value: ({ name }) => name,
      cell: ({ name, prefix }) => (
        <span className="flex flex-col">
          {name}
          <code className="font-normal text-muted text-xs">{prefix}…</code>
        </span>
      ),
    },
    { id: 'provider', header: columns.provider, value: (one) => one.provider, cell: (one) => one.provider },
    {
      id: 'cluster',
      header: columns.cluster,
      value: (one) => one.cluster ?? '',
      cell: (one) => one.cluster ?? texts.any,
    },
    {
      id: 'nodes',
      header: columns.nodes,
      numeric: true,
      value: ({ nodes }) => nodes,
      cell: ({ nodes, max_nodes }) => (max_nodes === null ? nodes : texts.of(nodes, max_nodes)),
    },
    { id: 'expires', header: columns.expires, nowrap: true, cell: (one) => dateTime(one.expires_at) },
    {
      id: 'state',
      header: columns.state,
      cell: (one) => (
        <CredentialStatus of={one} now={now} usedUp={one.max_nodes !== null && one.nodes >= one.max_nodes} />
      ),
    },
    {
      id: 'actions',
      header: columns.actions,
      cell: (one) => (
        <RowMenu
          name={one.name}
          actions={[one.revoked_at === null && { label: texts.revoke, act: () => revoke(one), danger: true }]}
        />
      ),
    },
  ];
}

interface TokenDialogProps {
  provider: string;
  made: (token: string | undefined) => unknown;
  close: () => void;
}

function TokenDialog({ provider, made, close }: TokenDialogProps) {
  const me = useMe();
  const known = useOptions('providers');
  const { form: words } = texts;
  const submit = async (filled: FilledFields) => {
    const expires = filled.text('expires');
    const body = {
      name: filled.text('name'),
      provider: filled.text('provider'),
      cluster: filled.optional('cluster'),
      ...(filled.number('max') !== null && { max_nodes: filled.number('max') }),
      ...(expires !== '' && { expires_at: `${expires}T23:59:59Z` }),
    };
    const { data } = await gateway.POST('/admin/join-tokens', { body });
    await made(data !== undefined && 'token' in data ? data.token : undefined);
  };
  return (
    <Dialog title={texts.create} close={close}>
      <Form action={t.common.create} submit={submit} close={close}>
        <Field label={words.name} hint={words.nameHint}>
          {(id) => <Input id={id} name="name" required maxLength={200} />}
        </Field>
        <Field label={words.provider} hint={words.providerHint}>
          {(id) => (
            <>
              <Input
                id={id}
                name="provider"
                required
                pattern={ID}
                list={`${id}-known`}
                defaultValue={provider}
                readOnly={me.provider !== null}
              />
              <datalist id={`${id}-known`}>
                {known?.map((one) => (
                  <option key={one.id} value={one.id}>
                    {one.name}
                  </option>
                ))}
              </datalist>
            </>
          )}
        </Field>
        <Field label={words.cluster} hint={words.clusterHint}>
          {(id) => <Input id={id} name="cluster" pattern={ID} />}
        </Field>
        <Field label={words.most} hint={words.mostHint}>
          {(id) => <Input id={id} name="max" type="number" min="1" />}
        </Field>
        <Field label={words.expires} hint={words.expiresHint}>
          {(id) => <Input id={id} name="expires" type="date" />}
        </Field>
      </Form>
    </Dialog>
  );
}
