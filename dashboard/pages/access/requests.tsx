import { useMemo, useState } from 'react';
import { gateway } from '../../api/client.ts';
import { type AccessRequest, useResources } from '../../api/resources.ts';
import { dateTime } from '../../parts/format.ts';
import { ResourceList } from '../../parts/resource-list.tsx';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Failure, Tag } from '../../ui/feedback.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { WIDE } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import type { FilledFields } from '../../ui/form-values.ts';
import { Section } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';
import { useAction } from '../../ui/use-action.ts';
import { useStable } from '../../ui/use-stable-callback.ts';

const texts = t.access.requests;
const KINDS = { open: 'wait', approved: 'good', refused: 'bad' } as const;

/** The user's own requests, and those that the user decides. */
export function AccessRequests({ mayAsk, mayDecide }: { mayAsk: boolean; mayDecide: boolean }) {
  const { user_id: me, role } = useMe();
  const requests = useResources('access-requests', (query, signal) =>
    gateway.GET('/admin/access-requests', { params: { query }, signal }),
  );
  const [asking, setAsking] = useState(false);
  const decision = useAction(() => void requests.refetch());
  const decide = useStable((id: string, status: 'approved' | 'refused') =>
    decision.act(gateway.PATCH('/admin/access-requests/{id}', { params: { path: { id } }, body: { status } })),
  );
  const columns = useMemo(
    () => columnsOf({ me, isOperator: role === 'operator', mayAsk, mayDecide, busy: decision.busy, decide }),
    [me, role, mayAsk, mayDecide, decision.busy, decide],
  );
  const ask = (filled: FilledFields) => {
    const [project_id, model] = [filled.optional('project'), filled.optional('model')];
    const provider = filled.optional('provider');
    if ([project_id, model, provider].filter((one) => one !== null).length !== 1) throw new Error(texts.one);
    const until = filled.text('until');
    const right = {
      provider: provider ?? '',
      ...(filled.optional('cluster') !== null && { cluster: filled.text('cluster') }),
      ...(filled.number('nodes') !== null && { max_nodes: filled.number('nodes') ?? 1 }),
      ...(until !== '' && { expires_at: `${until}T23:59:59Z` }),
    };
    const what = project_id !== null ? { project_id } : model !== null ? { model } : right;
    return gateway.POST('/admin/access-requests', { body: { ...what, reason: filled.text('reason') } });
  };
  return (
    <Section
      title={texts.title}
      actions={
        mayAsk && (
          <Button kind="primary" onClick={() => setAsking(true)}>
            {texts.ask}
          </Button>
        )
      }
    >
      {decision.error !== undefined && <Failure error={decision.error} />}
      <ResourceList
        label={texts.title}
        of={requests}
        columns={columns}
        none={texts.none}
        words={({ user_name, user_id, project_id, model, provider, cluster, reason }) =>
          `${user_name ?? ''} ${user_id} ${project_id ?? model ?? ''} ${provider ?? ''} ${cluster ?? ''} ${reason}`
        }
        rowId={({ id }) => id}
      />
      {asking && (
        <FormDialog
          title={texts.ask}
          action={texts.ask}
          submit={async (filled) => ask(filled)}
          saved={() => requests.refetch()}
          close={() => setAsking(false)}
        >
          <Field label={texts.project} hint={texts.projectHint}>
            {(id) => <Input id={id} name="project" maxLength={64} spellCheck={false} />}
          </Field>
          <Field label={texts.model} hint={texts.modelHint}>
            {(id) => <Input id={id} name="model" maxLength={256} spellCheck={false} />}
          </Field>
          <Field label={texts.provider} hint={texts.providerHint}>
            {(id) => <Input id={id} name="provider" maxLength={63} spellCheck={false} />}
          </Field>
          <Field label={texts.cluster}>
            {(id) => <Input id={id} name="cluster" maxLength={63} spellCheck={false} />}
          </Field>
          <Field label={texts.nodes}>{(id) => <Input id={id} name="nodes" type="number" min={1} max={1000} />}</Field>
          <Field label={texts.until}>{(id) => <Input id={id} name="until" type="date" />}</Field>
          <Field label={texts.reason} hint={texts.reasonHint} className={WIDE}>
            {(id) => <Input id={id} name="reason" maxLength={500} />}
          </Field>
        </FormDialog>
      )}
    </Section>
  );
}

interface Rights {
  me: string | null;
  isOperator: boolean;
  mayAsk: boolean;
  mayDecide: boolean;
  busy: boolean;
  decide: (id: string, status: 'approved' | 'refused') => void;
}

function columnsOf({ me, isOperator, mayAsk, mayDecide, busy, decide }: Rights): Column<AccessRequest>[] {
  const { columns } = texts;
  return [
    {
      id: 'who',
      header: columns.who,
      value: ({ user_name, user_id }) => user_name ?? user_id,
      cell: ({ user_name, user_id }) => (user_id === me ? texts.you : (user_name ?? texts.deleted)),
    },
    {
      id: 'what',
      header: columns.what,
      cell: ({ project_id, model, provider, cluster }) => (
        <code className="text-xs [overflow-wrap:anywhere]">
          {provider === null ? (project_id ?? model) : texts.nodesOf(provider, cluster)}
        </code>
      ),
    },
    { id: 'reason', header: columns.reason, cell: ({ reason }) => reason || t.common.none },
    { id: 'when', header: columns.when, nowrap: true, cell: ({ created_at }) => dateTime(created_at) },
    {
      id: 'state',
      header: columns.state,
      cell: ({ status }) => <Tag kind={KINDS[status]}>{texts.states[status]}</Tag>,
    },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: ({ id, status, user_id }) => {
        const [isMine, decides] = [user_id === me, mayDecide && (isOperator || user_id !== me)];
        if (status !== 'open' || !(decides || (isMine && mayAsk))) return null;
        return (
          <span className="flex gap-2">
            {decides && (
              <Button size="small" disabled={busy} onClick={() => decide(id, 'approved')}>
                {texts.approve}
              </Button>
            )}
            <Button size="small" disabled={busy} onClick={() => decide(id, 'refused')}>
              {isMine ? texts.takeBack : texts.refuse}
            </Button>
          </span>
        );
      },
    },
  ];
}
