import { useCallback, useMemo, useState } from 'react';
import { useLocation } from 'wouter';
import { gateway } from '../../api/client.ts';
import { type User, useResources } from '../../api/resources.ts';
import { dateTime } from '../../parts/format.ts';
import { ManagedList } from '../../parts/managed-list.tsx';
import { useNames } from '../../parts/reference-select.tsx';
import { t } from '../../texts/index.ts';
import { Confirm } from '../../ui/dialog.tsx';
import type { Column } from '../../ui/table.tsx';
import { UserDialog } from './user-dialog.tsx';

const texts = t.users;

export default function Users() {
  const users = useResources('users', (query, signal) => gateway.GET('/admin/users', { params: { query }, signal }));
  const projectName = useNames('projects');
  const [, navigate] = useLocation();
  const [deleted, setDeleted] = useState<User>();
  const columns = useMemo(() => columnsOf(projectName), [projectName]);
  const more = useCallback(
    (user: User) => ({
      before: { label: texts.newKey, act: () => navigate(`/keys?user=${user.id}`) },
      after: { label: texts.delete, act: () => setDeleted(user), danger: true },
    }),
    [navigate],
  );
  return (
    <>
      <ManagedList
        title={t.admin.tabs.users}
        texts={texts}
        of={users}
        columns={columns}
        words={wordsOf}
        setDisabled={setDisabled}
        dialog={(user, saved, close) => <UserDialog user={user} saved={saved} close={close} />}
        more={more}
      />
      {deleted !== undefined && (
        <DeleteUser user={deleted} done={() => users.refetch()} close={() => setDeleted(undefined)} />
      )}
    </>
  );
}

interface DeleteUserProps {
  user: User;
  done: () => unknown;
  close: () => void;
}

/** Deletes a user. One request removes a few days of usage records, so it is repeated until none are left. */
function DeleteUser({ user, done, close }: DeleteUserProps) {
  const [left, setLeft] = useState<number>();
  const erase = async () => {
    let days: number | undefined;
    do {
      const { data } = await gateway.DELETE('/admin/users/{id}', { params: { path: { id: user.id } } });
      days = data?.days_left ?? 0;
      setLeft(days);
    } while (days > 0);
    await done();
  };
  return (
    <Confirm title={texts.deleteTitle(user.name)} action={texts.delete} act={erase} close={close}>
      {texts.deleteFollows}
      {left !== undefined && left > 0 && <p role="status">{texts.deleting(left)}</p>}
    </Confirm>
  );
}

const setDisabled = ({ id }: User, disabled: boolean) =>
  gateway.PATCH('/admin/users/{id}', { params: { path: { id } }, body: { disabled } });

const wordsOf = ({ name, email, role, id }: User) => `${name} ${email ?? ''} ${role} ${id}`;

function columnsOf(projectName: (id: string | null) => string): Column<User>[] {
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
      nowrap: true,
      cell: ({ last_login_at }) => dateTime(last_login_at),
    },
  ];
}
