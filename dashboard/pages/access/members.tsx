import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { gateway } from '../../api/client.ts';
import type { paths } from '../../api/contract.ts';
import { dateTime } from '../../parts/format.ts';
import { limitsFromForm, limitWords } from '../../parts/key-restrictions.ts';
import { LimitFields } from '../../parts/limit-fields.tsx';
import { Reference } from '../../parts/reference-select.tsx';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { Failure, Tag } from '../../ui/feedback.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import { Card } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';
import { useAction } from '../../ui/use-action.ts';
import { useStable } from '../../ui/use-stable-callback.ts';

const texts = t.access.projects;

type Members = paths['/admin/projects/{id}/members']['get']['responses'][200]['content']['application/json'];
type Member = Members['data'][number];

interface MembersProps {
  of: { id: string; name: string };
  mayChange: boolean;
  close: () => void;
}

/** Leads add, remove and limit members; operators appoint leads. */
export function Members({ of: { id, name }, mayChange, close }: MembersProps) {
  const isOperator = useMe().role === 'operator';
  const members = useQuery({
    queryKey: ['members', id],
    queryFn: async ({ signal }) =>
      (await gateway.GET('/admin/projects/{id}/members', { params: { path: { id } }, signal })).data?.data ?? [],
  });
  const [adding, setAdding] = useState(false);
  const [removed, setRemoved] = useState<Member>();
  const [limited, setLimited] = useState<Member>();
  const change = useAction(() => neverRejects(members.refetch()));
  const put = useStable((user: string, lead: boolean) =>
    change.act(gateway.PUT('/admin/projects/{id}/members/{user}', { params: { path: { id, user } }, body: { lead } })),
  );
  const columns = useMemo(
    () => columnsOf({ mayChange, isOperator, remove: setRemoved, limit: setLimited, lead: put }),
    [mayChange, isOperator, put],
  );
  return (
    <Card className="flex flex-col gap-4">
      <div className="flex flex-wrap items-center justify-between gap-3">
        <h3 className="text-base [overflow-wrap:anywhere]">{texts.membersOf(name)}</h3>
        <span className="flex gap-2">
          {mayChange && (
            <Button size="small" kind="primary" onClick={() => setAdding(true)}>
              {texts.add}
            </Button>
          )}
          <Button size="small" onClick={close}>
            {texts.back}
          </Button>
        </span>
      </div>
      {change.error !== undefined && <Failure error={change.error} />}
      <ResourceList
        label={texts.membersOf(name)}
        of={{ data: members.data, error: members.error, refetch: members.refetch, showMore: undefined }}
        columns={columns}
        none={texts.noMembers}
        words={(member) => `${member.name} ${member.user_id}`}
        rowId={({ user_id }) => user_id}
      />
      {adding && (
        <FormDialog
          title={texts.add}
          action={texts.add}
          submit={(filled) =>
            gateway.PUT('/admin/projects/{id}/members/{user}', {
              params: { path: { id, user: filled.text('user') } },
              body: {},
            })
          }
          saved={() => members.refetch()}
          close={() => setAdding(false)}
        >
          {isOperator ? (
            <Reference of="users" name="user" label={texts.user} required />
          ) : (
            <Field label={texts.user} hint={texts.userHint}>
              {(field) => <Input id={field} name="user" required maxLength={64} spellCheck={false} />}
            </Field>
          )}
        </FormDialog>
      )}
      {limited && (
        <FormDialog
          title={texts.limitTitle(limited.name)}
          action={t.common.save}
          submit={async (filled) => {
            const at = { params: { path: { id, user: limited.user_id } } };
            const { limits } = await filled.changesOver(
              (one) => limitsFromForm(one, limited),
              async () => (await members.refetch()).data?.find(({ user_id }) => user_id === limited.user_id),
            );
            if (limits === undefined) return;
            await gateway.PATCH('/admin/projects/{id}/members/{user}', { ...at, body: { limits } });
          }}
          saved={() => members.refetch()}
          close={() => setLimited(undefined)}
        >
          <LimitFields of={limited} hint={texts.limitHint} />
        </FormDialog>
      )}
      {removed && (
        <Confirm
          title={texts.removeTitle(removed.name)}
          action={texts.remove}
          act={() =>
            gateway
              .DELETE('/admin/projects/{id}/members/{user}', { params: { path: { id, user: removed.user_id } } })
              .then(() => members.refetch())
          }
          close={() => setRemoved(undefined)}
        >
          {texts.removeFollows}
        </Confirm>
      )}
    </Card>
  );
}

interface Rights {
  mayChange: boolean;
  isOperator: boolean;
  remove: (member: Member) => void;
  limit: (member: Member) => void;
  lead: (user: string, lead: boolean) => void;
}

function columnsOf({ mayChange, isOperator, remove, limit, lead }: Rights): Column<Member>[] {
  const { columns } = texts;
  return [
    {
      id: 'name',
      header: columns.name,
      value: ({ name }) => name,
      cell: ({ name, user_id }) => (
        <span className="flex flex-col">
          {name}
          <code className="font-normal text-muted text-xs">{user_id}</code>
        </span>
      ),
    },
    {
      id: 'role',
      header: columns.role,
      cell: (member) => <Tag kind={member.lead ? 'accent' : 'plain'}>{member.lead ? texts.lead : texts.member}</Tag>,
    },
    {
      id: 'granted',
      header: columns.granted,
      cell: ({ claimed, home }) =>
        claimed ? <span title={texts.byClaimsHint}>{texts.byClaims}</span> : home ? texts.home : texts.here,
    },
    { id: 'limits', header: columns.limits, cell: ({ limits }) => limitWords(limits) },
    { id: 'since', header: columns.since, nowrap: true, cell: ({ created_at }) => dateTime(created_at) },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: (member) => {
        const { user_id, lead: leads, claimed, home, name } = member;
        const raise = { label: leads ? texts.makeMember : texts.makeLead, act: () => lead(user_id, !leads) };
        const end = { label: texts.remove, act: () => remove(member), danger: true };
        const narrow = { label: texts.limit, act: () => limit(member) };
        // Only operators may remove a lead. A membership that comes from claims of the login cannot be removed here. A
        // home project can only be replaced by another project.
        const mayRemove = mayChange && !claimed && !home && (isOperator || !leads);
        const actions = [mayChange && narrow, isOperator && mayChange && raise, mayRemove && end];
        return <RowMenu name={name} actions={actions} />;
      },
    },
  ];
}
