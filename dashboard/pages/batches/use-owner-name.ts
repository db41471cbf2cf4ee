import { useCallback } from 'react';
import { useNames } from '../../parts/reference-select.tsx';
import { t } from '../../texts/index.ts';

/** Returns names for the gateway's `project:ID`, `user:ID` and `key:ID`. `enabled`: the user is an operator. */
export function useOwnerName(enabled: boolean): (owner: string | undefined) => string {
  const [userName, projectName] = [useNames('users', enabled), useNames('projects', enabled)];
  return useCallback(
    (owner) => {
      if (owner === undefined) return t.common.none;
      const [kind, id = ''] = owner.split(/:(.*)/s);
      if (owner === 'key:bootstrap') return t.batches.operatorsKey;
      if (kind === 'project') return projectName(id);
      return kind === 'user' ? userName(id) : `${t.shell.key} ${id}`;
    },
    [userName, projectName],
  );
}
