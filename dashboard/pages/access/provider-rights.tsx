import { useMemo, useState } from 'react';
import { gatewayUrl } from '../../api/base-path.ts';
import { gateway } from '../../api/client.ts';
import { type ProviderRight, useResources } from '../../api/resources.ts';
import { CredentialStatus, isGood } from '../../parts/credential-status.tsx';
import { dateTime } from '../../parts/format.ts';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { useMe } from '../../parts/session.tsx';
import { useMinute } from '../../parts/use-minute.ts';
import { t } from '../../texts/index.ts';
import { Secret } from '../../ui/copy.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import type { FilledFields } from '../../ui/form-values.ts';
import { Section } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';

const texts = t.access.rights;

/** Rights to contribute nodes: the user's own, and those that the user may revoke. Hidden if there are none. */
export function ProviderRights({ mayRevoke }: { mayRevoke: boolean }) {
  const { user_id: me } = useMe();
  const rights = useResources('provider-rights', (query, signal) =>
    gateway.GET('/admin/provider-rights', { params: { query }, signal }),
  );
  const now = useMinute();
  const [used, setUsed] = useState<ProviderRight>();
  const [revoked, setRevoked] = useState<ProviderRight>();
  const [secret, setSecret] = useState<string>();
  const columns = useMemo(
    () => columnsOf({ me, now, use: setUsed, revoke: mayRevoke ? setRevoked : undefined }),
    [me, now, mayRevoke],
  );
  const create = async (filled: FilledFields, { provider, cluster }: ProviderRight) => {
    const max = filled.number('nodes');
    const body = { name: filled.text('name'), provider, cluster, ...(max !== null && { max_nodes: max }) };
    const { data } = await gateway.POST('/admin/join-tokens', { body });
    setSecret(data !== undefined && 'token' in data ? data.token : undefined);
  };
  if (rights.data?.length === 0) return null;
  return (
    <Section title={texts.title}>
      {secret !== undefined && (
        <Secret
          title={texts.yours}
          secret={secret}
          command={{
            label: texts.install,
            text: `curl -fsSL ${gatewayUrl}/install | OTELA_TOKEN=${secret} sh`,
          }}
          close={() => setSecret(undefined)}
        />
      )}
      <ResourceList
        label={texts.title}
        of={rights}
        columns={columns}
        none={texts.none}
        words={({ user_id, provider, cluster }) => `${user_id} ${provider} ${cluster}`}
        rowId={({ id }) => id}
      />
      {used && (
        <FormDialog
          title={texts.create}
          action={t.common.create}
          submit={async (filled) => create(filled, used)}
          saved={() => rights.refetch()}
          close={() => setUsed(undefined)}
        >
          <Field label={texts.name}>{(id) => <Input id={id} name="name" required maxLength={200} />}</Field>
          <Field label={texts.nodes} hint={texts.nodesHint}>
            {(id) => <Input id={id} name="nodes" type="number" min={1} max={used.max_nodes} />}
          </Field>
        </FormDialog>
      )}
      {revoked && (
        <Confirm
          title={texts.revokeTitle(revoked.provider)}
          action={texts.revoke}
          act={() =>
            gateway
              .DELETE('/admin/provider-rights/{id}', { params: { path: { id: revoked.id } } })
              .then(() => rights.refetch())
          }
          close={() => setRevoked(undefined)}
        >
          {texts.revokeFollows}
        </Confirm>
      )}
    </Section>
  );
}

interface Rows {
  me: string | null;
  now: number;
  use: (right: ProviderRight) => void;
  /** Absent: the user may not revoke rights. */
  revoke: ((right: ProviderRight) => void) | undefined;
}

function columnsOf({ me, now, use, revoke }: Rows): Column<ProviderRight>[] {
  const { columns } = texts;
  return [
    { id: 'user', header: columns.user, value: (one) => one.user_id, cell: (one) => <code>{one.user_id}</code> },
    { id: 'provider', header: columns.provider, value: (one) => one.provider, cell: (one) => one.provider },
    { id: 'cluster', header: columns.cluster, value: (one) => one.cluster, cell: (one) => one.cluster },
    {
      id: 'nodes',
      header: columns.nodes,
      numeric: true,
      value: ({ max_nodes }) => max_nodes,
      cell: ({ max_nodes }) => max_nodes,
    },
    { id: 'until', header: columns.until, nowrap: true, cell: (one) => dateTime(one.expires_at) },
    { id: 'state', header: columns.state, cell: (one) => <CredentialStatus of={one} now={now} usedUp={false} /> },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: (one) => (
        <RowMenu
          name={one.provider}
          actions={[
            one.user_id === me && isGood(one, now) && { label: texts.create, act: () => use(one) },
            one.revoked_at === null &&
              revoke !== undefined && { label: texts.revoke, act: () => revoke(one), danger: true },
          ]}
        />
      ),
    },
  ];
}
