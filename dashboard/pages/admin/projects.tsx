import { useCallback } from 'react';
import { useLocation } from 'wouter';
import { gateway } from '../../api/client.ts';
import { type Project, useResources } from '../../api/resources.ts';
import { limitWords } from '../../parts/key-restrictions.ts';
import { ManagedList } from '../../parts/managed-list.tsx';
import { t } from '../../texts/index.ts';
import type { Column } from '../../ui/table.tsx';
import { ProjectDialog } from './project-dialog.tsx';

const texts = t.projects;

export default function Projects() {
  const projects = useResources('projects', (query, signal) =>
    gateway.GET('/admin/projects', { params: { query }, signal }),
  );
  const [, navigate] = useLocation();
  const more = useCallback(
    ({ id }: Project) => ({ before: { label: texts.keys, act: () => navigate(`/keys?project=${id}`) } }),
    [navigate],
  );
  return (
    <ManagedList
      title={t.admin.tabs.projects}
      texts={texts}
      of={projects}
      columns={COLUMNS}
      words={wordsOf}
      setDisabled={setDisabled}
      dialog={(project, saved, close) => <ProjectDialog project={project} saved={saved} close={close} />}
      more={more}
    />
  );
}

const setDisabled = ({ id }: Project, disabled: boolean) =>
  gateway.PATCH('/admin/projects/{id}', { params: { path: { id } }, body: { disabled } });

const wordsOf = ({ name, id, models }: Project) => `${name} ${id} ${models?.join(' ') ?? ''}`;

const { columns } = texts;
const COLUMNS: readonly Column<Project>[] = [
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
];
