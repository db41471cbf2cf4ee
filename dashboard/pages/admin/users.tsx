import { useMemo, useState } from 'react';
import { useLocation } from 'wouter';
import { gateway } from '../../api/client.ts';
import { type User, useResources } from '../../api/resources.ts';
import { dateTime } from '../../parts/format.ts';
import { useNames } from '../../parts/references.tsx';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { Tag } from '../../ui/feedback.tsx';
import { Page } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';
import { DeleteUser } from './delete-user.tsx';
import { UserDialog } from './user-dialog.tsx';

const texts = t.users;

type Asked = { kind: 'create' } | { kind: 'edit' | 'disable' | 'delete'; user: User };

export default function Users() {
  const users = useResources('users', (query, signal) => gateway.GET('/admin/users', { params: { query }, signal }));
  const projectName = useNames('projects');
  const [, navigate] = useLocation();
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  const again = () => users.refetch();
  const columns = useMemo(() => {
    const ask = (kind: 'edit' | 'disable' | 'delete', user: User) => setAsked({ kind, user });
    const enable = (user: User) =>
      void gateway
        .PATCH('/admin/users/{id}', { params: { path: { id: user.id } }, body: { disabled: false } })
        .then(users.refetch);
    return columnsOf(projectName, ask, enable, (user) => navigate(`/keys?user=${user.id}`));
  }, [projectName, users.refetch, navigate]);
  return (
    <Page
      title={t.admin.tabs.users}
      about={texts.about}
      actions={
        <Button kind="primary" onClick={() => setAsked({ kind: 'create' })}>
          {texts.create}
        </Button>
      }
    >
      <ResourceList
        label={t.admin.tabs.users}
        of={users}
        columns={columns}
        none={texts.none}
        words={wordsOf}
        rowId={({ id }) => id}
      />
      {asked?.kind === 'create' && <UserDialog user={undefined} saved={again} close={close} />}
      {asked?.kind === 'edit' && <UserDialog user={asked.user} saved={again} close={close} />}
      {asked?.kind === 'disable' && (
        <Confirm
          title={texts.disableTitle(asked.user.name)}
          action={t.admin.disable}
          act={() =>
            gateway
              .PATCH('/admin/users/{id}', { params: { path: { id: asked.user.id } }, body: { disabled: true } })
              .then(again)
          }
          close={close}
        >
          {texts.disableFollows}
        </Confirm>
      )}
      {asked?.kind === 'delete' && <DeleteUser user={asked.user} done={again} close={close} />}
    </Page>
  );
}

const wordsOf = ({ name, email, role, id }: User) => `${name} ${email ?? ''} ${role} ${id}`;

function columnsOf(
  projectName: (id: string | null) => string,
  ask: (kind: 'edit' | 'disable' | 'delete', user: User) => void,
  enable: (user: User) => void,
  newKey: (user: User) => void,
): Column<User>[] {
  const { columns } = texts;
  return [
    {
      id: 'name',
      header: columns.name,
      value: ({ name }) => name,
      cell: ({ name, email }) => (
        <span className="flex flex-col">
          {name}
          {email !== null && <span className="font-normal text-muted text-xs">{email}</span>}
        </span>
      ),
    },
    {
      id: 'role',
      header: columns.role,
      value: ({ role }) => role,
      cell: ({ role, provider }) => (role === 'provider' ? `${texts.roles[role]}: ${provider}` : texts.roles[role]),
    },
    {
      id: 'project',
      header: columns.project,
      value: ({ project_id }) => projectName(project_id),
      cell: ({ project_id }) => projectName(project_id),
    },
    {
      id: 'login',
      header: columns.login,
      value: ({ last_login_at }) => last_login_at ?? '',
      cell: ({ last_login_at }) => dateTime(last_login_at),
    },
    {
      id: 'state',
      header: columns.state,
      cell: ({ disabled_at }) =>
        disabled_at === null ? <Tag kind="good">{t.admin.active}</Tag> : <Tag kind="plain">{t.admin.disabled}</Tag>,
    },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: (user) => (
        <RowMenu
          name={user.name}
          actions={[
            { label: t.admin.edit, act: () => ask('edit', user) },
            user.disabled_at === null && { label: texts.newKey, act: () => newKey(user) },
            user.disabled_at === null
              ? { label: t.admin.disable, act: () => ask('disable', user) }
              : { label: t.admin.enable, act: () => enable(user) },
            { label: texts.delete, act: () => ask('delete', user), danger: true },
          ]}
        />
      ),
    },
  ];
}
