import { useMemo, useState } from 'react';
import { useLocation } from 'wouter';
import { gateway } from '../../api/client.ts';
import { type Project, useResources } from '../../api/resources.ts';
import { limitWords } from '../../parts/limit-fields.tsx';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { Tag } from '../../ui/feedback.tsx';
import { Page } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';
import { ProjectDialog } from './project-dialog.tsx';

const texts = t.projects;

type Asked = { kind: 'create' } | { kind: 'edit' | 'disable'; project: Project };

const setDisabled = ({ id }: Project, disabled: boolean) =>
  gateway.PATCH('/admin/projects/{id}', { params: { path: { id } }, body: { disabled } });

export default function Projects() {
  const projects = useResources('projects', (query, signal) =>
    gateway.GET('/admin/projects', { params: { query }, signal }),
  );
  const [, navigate] = useLocation();
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  const again = () => projects.refetch();
  const columns = useMemo(
    () =>
      columnsOf(
        (kind, project) => setAsked({ kind, project }),
        (project) => void setDisabled(project, false).then(projects.refetch),
        (project) => navigate(`/keys?project=${project.id}`),
      ),
    [projects.refetch, navigate],
  );
  return (
    <Page
      title={t.admin.tabs.projects}
      about={texts.about}
      actions={
        <Button kind="primary" onClick={() => setAsked({ kind: 'create' })}>
          {texts.create}
        </Button>
      }
    >
      <ResourceList
        label={t.admin.tabs.projects}
        of={projects}
        columns={columns}
        none={texts.none}
        words={wordsOf}
        rowId={({ id }) => id}
      />
      {asked?.kind === 'create' && <ProjectDialog project={undefined} saved={again} close={close} />}
      {asked?.kind === 'edit' && <ProjectDialog project={asked.project} saved={again} close={close} />}
      {asked?.kind === 'disable' && (
        <Confirm
          title={texts.disableTitle(asked.project.name)}
          action={t.admin.disable}
          act={() => setDisabled(asked.project, true).then(again)}
          close={close}
        >
          {texts.disableFollows}
        </Confirm>
      )}
    </Page>
  );
}

const wordsOf = ({ name, id, models }: Project) => `${name} ${id} ${models?.join(' ') ?? ''}`;

function columnsOf(
  ask: (kind: 'edit' | 'disable', project: Project) => void,
  enable: (project: Project) => void,
  newKey: (project: Project) => void,
): Column<Project>[] {
  const { columns } = texts;
  return [
    {
      id: 'name',
      header: columns.name,
      value: ({ name }) => name,
      cell: ({ name, id }) => (
        <span className="flex flex-col">
          {name}
          <code className="font-normal text-muted text-xs">{id}</code>
        </span>
      ),
    },
    { id: 'limits', header: columns.limits, cell: ({ limits }) => limitWords(limits) },
    { id: 'models', header: columns.models, cell: ({ models }) => models?.join(', ') ?? texts.all },
    {
      id: 'providers',
      header: columns.providers,
      cell: ({ trusted_providers: trusted }) => trusted?.join(', ') ?? texts.byDefault,
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
      cell: (project) => (
        <RowMenu
          name={project.name}
          actions={[
            { label: t.admin.edit, act: () => ask('edit', project) },
            project.disabled_at === null && { label: texts.keys, act: () => newKey(project) },
            project.disabled_at === null
              ? { label: t.admin.disable, act: () => ask('disable', project), danger: true }
              : { label: t.admin.enable, act: () => enable(project) },
          ]}
        />
      ),
    },
  ];
}
