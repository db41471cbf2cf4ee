import { useState } from 'react';
import { gateway } from '../../api/client.ts';
import type { User } from '../../api/resources.ts';
import { t } from '../../texts/index.ts';
import { Confirm } from '../../ui/dialog.tsx';

const texts = t.users;

interface DeleteUserProps {
  user: User;
  done: () => unknown;
  close: () => void;
}

/** Each call removes a few days of records, so it is repeated until none is left. */
export function DeleteUser({ user, done, close }: DeleteUserProps) {
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
