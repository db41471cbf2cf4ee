import { useMemo, useState } from 'react';
import { useLocation, useSearch } from 'wouter';
import { gateway } from '../../api/client.ts';
import { type Key, useResources } from '../../api/resources.ts';
import { CredentialStatus, isGood } from '../../parts/credential-status.tsx';
import { dateTime } from '../../parts/format.ts';
import { limitWords } from '../../parts/key-restrictions.ts';
import { useNames } from '../../parts/reference-select.tsx';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { useMe } from '../../parts/session.tsx';
import { useMinute } from '../../parts/use-minute.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Secret } from '../../ui/copy.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { Empty } from '../../ui/feedback.tsx';
import { Page } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';
import { DeviceLogin } from './device-login.tsx';
import { KeyDialog } from './key-dialog.tsx';

const texts = t.keys;

export default function KeysPage() {
  const me = useMe();
  const code = new URLSearchParams(useSearch()).get('code');
  const [, navigate] = useLocation();
  if (code !== null) return <DeviceLogin close={() => navigate('/keys', { replace: true })} />;
  if (!me.login && me.role !== 'operator')
    return (
      <Page title={t.pages.keys}>
        <Empty>{texts.needsLogin}</Empty>
      </Page>
    );
  return <Keys isOperator={me.role === 'operator'} />;
}

type Asked = { kind: 'create' } | { kind: 'edit' | 'rotate' | 'revoke'; key: Key };

function Keys({ isOperator }: { isOperator: boolean }) {
  const now = useMinute();
  const keys = useResources('keys', (query, signal) => gateway.GET('/admin/keys', { params: { query }, signal }));
  const [userName, projectName] = [useNames('users', isOperator), useNames('projects', isOperator)];
  // Other pages link here to make a key for one user or in one project: `#/keys?user=ID`.
  const from = new URLSearchParams(useSearch());
  const [, navigate] = useLocation();
  const [asked, setAsked] = useState<Asked | undefined>(from.size > 0 ? { kind: 'create' } : undefined);
  const [secret, setSecret] = useState<string>();
  const again = () => keys.refetch();
  const close = () => {
    setAsked(undefined);
    if (from.size > 0) navigate('/keys', { replace: true });
  };
  const columns = useMemo(
    () => columnsOf(now, isOperator ? { userName, projectName } : undefined, (kind, key) => setAsked({ kind, key })),
    [now, isOperator, userName, projectName],
  );
  return (
    <Page
      title={t.pages.keys}
      about={texts.about}
      actions={
        <>
          <Button onClick={() => navigate('/keys?code=')}>{texts.device.title}</Button>
          <Button kind="primary" onClick={() => setAsked({ kind: 'create' })}>
            {texts.create}
          </Button>
        </>
      }
    >
      {secret !== undefined && <Secret title={texts.yours} secret={secret} close={() => setSecret(undefined)} />}
      <ResourceList
        label={t.pages.keys}
        of={keys}
        columns={columns}
        none={texts.none}
        words={({ name, prefix, models }) => `${name} ${prefix} ${models?.join(' ') ?? ''}`}
        rowId={({ id }) => id}
      />
      {asked?.kind === 'create' && (
        <KeyDialog
          of={undefined}
          owner={from.get('user')}
          project={from.get('project')}
          saved={(made) => {
            setSecret(made);
            return again();
          }}
          close={close}
        />
      )}
      {asked?.kind === 'edit' && <KeyDialog of={asked.key} saved={again} close={close} />}
      {asked?.kind === 'rotate' && (
        <Confirm
          kind="primary"
          title={texts.rotateTitle(asked.key.name)}
          action={texts.rotate}
          act={async () => {
            const { data } = await gateway.POST('/admin/keys/{id}/rotate', { ...at(asked.key), body: {} });
            setSecret(data !== undefined && 'key' in data ? data.key : undefined);
            await again();
          }}
          close={close}
        >
          {texts.rotateFollows}
        </Confirm>
      )}
      {asked?.kind === 'revoke' && (
        <Confirm
          title={texts.revokeTitle(asked.key.name)}
          action={texts.revoke}
          act={() => gateway.DELETE('/admin/keys/{id}', at(asked.key)).then(again)}
          close={close}
        >
          {texts.revokeFollows}
        </Confirm>
      )}
    </Page>
  );
}

const at = ({ id }: Key) => ({ params: { path: { id } } });

/** The owners of keys, for operators. */
interface OwnerNames {
  userName: (id: string | null) => string;
  projectName: (id: string | null) => string;
}

function columnsOf(
  now: number,
  owners: OwnerNames | undefined,
  ask: (kind: 'edit' | 'rotate' | 'revoke', key: Key) => void,
): Column<Key>[] {
  const { columns } = texts;
  const owner: Column<Key> = {
    id: 'owner',
    header: columns.owner,
    cell: ({ user_id, project_id }) => (
      <span className="flex flex-col">
        {owners?.userName(user_id)}
        {project_id !== null && <span className="text-muted text-xs">{owners?.projectName(project_id)}</span>}
      </span>
    ),
  };
  return [
    {
      id: 'name',
      header: columns.name,
      value: ({ name }) => name,
      cell: ({ name, prefix, role }) => (
        <span className="flex flex-col">
          {name}
          <span className="font-normal text-muted text-xs">
            <code>{prefix}…</code>
            {role !== 'consumer' && ` ${t.users.roles[role]}`}
          </span>
        </span>
      ),
    },
    ...(owners === undefined ? [] : [owner]),
    { id: 'models', header: columns.models, cell: ({ models }) => models?.join(', ') ?? texts.allModels },
    { id: 'limits', header: columns.limits, cell: ({ limits }) => limitWords(limits) },
    {
      id: 'trusted',
      header: columns.trusted,
      cell: (key) => key.trusted_providers?.join(', ') ?? texts.trustedDefault,
    },
    {
      id: 'used',
      header: columns.used,
      nowrap: true,
      value: (key) => key.last_used_at ?? '',
      cell: (key) => dateTime(key.last_used_at),
    },
    {
      id: 'expires',
      header: columns.expires,
      nowrap: true,
      value: (key) => key.expires_at ?? '',
      cell: (key) => dateTime(key.expires_at),
    },
    { id: 'state', header: columns.state, cell: (key) => <CredentialStatus of={key} now={now} /> },
    {
      id: 'actions',
      header: columns.actions,
      cell: (key) => (
        <RowMenu
          name={key.name}
          actions={
            isGood(key, now)
              ? [
                  { label: t.admin.edit, act: () => ask('edit', key) },
                  { label: texts.rotate, act: () => ask('rotate', key) },
                  { label: texts.revoke, act: () => ask('revoke', key), danger: true },
                ]
              : []
          }
        />
      ),
    },
  ];
}
