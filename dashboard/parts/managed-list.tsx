import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useMemo, useState } from 'react';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { Resources } from '../api/resources.ts';
import { t } from '../texts/index.ts';
import { Button } from '../ui/button.tsx';
import { Confirm } from '../ui/dialog.tsx';
import { Failure, Tag } from '../ui/feedback.tsx';
import { Page } from '../ui/page.tsx';
import type { Column } from '../ui/table.tsx';
import { useAction } from '../ui/use-action.ts';
import { useStable } from '../ui/use-stable-callback.ts';
import { ResourceList, type RowAction, RowMenu } from './resource-list.tsx';

interface Managed {
  id: string;
  name: string;
  /** When the row was disabled, in RFC 3339; null: it is enabled. */
  disabled_at: string | null;
}

interface ManagedListProps<T extends Managed> {
  title: string;
  texts: {
    about: string;
    create: string;
    none: string;
    disableTitle: (name: string) => string;
    disableFollows: string;
    columns: { state: string };
  };
  of: Resources<T>;
  /** All columns but the last two, which are the state and the actions. */
  columns: readonly Column<T>[];
  /** The text of a row in which the search looks. */
  words: (row: T) => string;
  setDisabled: (row: T, disabled: boolean) => Promise<unknown>;
  /** Renders the form for a row. `row` undefined: the form creates a row. */
  dialog: (row: T | undefined, saved: () => unknown, close: () => void) => ReactNode;
  /**
   * Actions in addition to editing and disabling. Pass the same function at each render while its result is the same.
   */
  more: (row: T) => { before?: RowAction | false; after?: RowAction | false };
}

type Asked<T> = { kind: 'create' } | { kind: 'edit' | 'disable'; row: T };

/** A page of things that operators make, edit, disable and enable: users, projects. */
export function ManagedList<T extends Managed>(props: ManagedListProps<T>) {
  const { title, texts, of, words, setDisabled, dialog, more } = props;
  const [asked, setAsked] = useState<Asked<T>>();
  const close = () => setAsked(undefined);
  const queries = useQueryClient();
  // Forms offer these rows as options, so the options are read again too.
  const again = useStable(() => {
    neverRejects(queries.invalidateQueries({ queryKey: ['options'] }));
    return of.refetch();
  });
  const enabling = useAction(again);
  const enable = useStable((row: T) => enabling.act(setDisabled(row, false)));
  const columns = useMemo((): Column<T>[] => {
    const actions = (row: T) => {
      const { before = false, after = false } = more(row);
      const edit = { label: t.admin.edit, act: () => setAsked({ kind: 'edit', row }) };
      const disable = { label: t.admin.disable, act: () => setAsked({ kind: 'disable', row }), danger: true };
      return row.disabled_at === null
        ? [edit, before, disable, after]
        : [edit, { label: t.admin.enable, act: () => enable(row) }, after];
    };
    return [
      ...props.columns,
      {
        id: 'state',
        header: texts.columns.state,
        cell: ({ disabled_at }) =>
          disabled_at === null ? <Tag kind="good">{t.admin.active}</Tag> : <Tag kind="plain">{t.admin.disabled}</Tag>,
      },
      {
        id: 'actions',
        header: t.admin.columns.actions,
        cell: (row) => <RowMenu name={row.name} actions={actions(row)} />,
      },
    ];
  }, [props.columns, texts, enable, more]);
  return (
    <Page
      title={title}
      about={texts.about}
      actions={
        <Button kind="primary" onClick={() => setAsked({ kind: 'create' })}>
          {texts.create}
        </Button>
      }
    >
      {enabling.error !== undefined && <Failure error={enabling.error} />}
      <ResourceList label={title} of={of} columns={columns} none={texts.none} words={words} rowId={({ id }) => id} />
      {asked?.kind === 'create' && dialog(undefined, again, close)}
      {asked?.kind === 'edit' && dialog(asked.row, again, close)}
      {asked?.kind === 'disable' && (
        <Confirm
          title={texts.disableTitle(asked.row.name)}
          action={t.admin.disable}
          act={() => setDisabled(asked.row, true).then(again)}
          close={close}
        >
          {texts.disableFollows}
        </Confirm>
      )}
    </Page>
  );
}
