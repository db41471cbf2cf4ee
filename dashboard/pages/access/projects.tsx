import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { gateway } from '../../api/client.ts';
import { Reference, useNames } from '../../parts/reference-select.tsx';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Empty, Show, Tag } from '../../ui/feedback.tsx';
import { Form } from '../../ui/form.tsx';
import { Section } from '../../ui/page.tsx';
import { Members } from './members.tsx';

const texts = t.access.projects;

/** The user's projects, with the members of those that the user leads. Operators see the members of all projects. */
export function Projects({ mayChange }: { mayChange: boolean }) {
  const { user_id: person, role } = useMe();
  const isOperator = role === 'operator';
  const names = useNames('projects', isOperator);
  const [shown, setShown] = useState<{ id: string; name: string }>();
  const mine = useQuery({
    queryKey: ['my-projects'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/me/projects', { signal })).data?.data ?? [],
  });
  return (
    <Section title={texts.title}>
      <p className="text-muted [overflow-wrap:anywhere]">
        {person === null ? t.access.noPerson : t.access.you(person)}
      </p>
      <Show of={mine}>
        {(projects) =>
          projects.length === 0 ? (
            !isOperator && <Empty>{texts.none}</Empty>
          ) : (
            <ul className="flex flex-col gap-2">
              {projects.map(({ id, name, lead, home }) => (
                <li
                  key={id}
                  className="flex flex-wrap items-center gap-3 rounded-lg border border-line bg-surface px-4 py-3"
                >
                  <span className="flex min-w-0 flex-1 flex-col [overflow-wrap:anywhere]">
                    {name}
                    <code className="text-muted text-xs">{id}</code>
                  </span>
                  {home && <Tag kind="plain">{texts.home}</Tag>}
                  <Tag kind={lead ? 'accent' : 'plain'}>{lead ? texts.lead : texts.member}</Tag>
                  {lead && (
                    <Button size="small" onClick={() => setShown({ id, name })}>
                      {texts.membersOf(name)}
                    </Button>
                  )}
                </li>
              ))}
            </ul>
          )
        }
      </Show>
      {isOperator && (
        <Form
          action={texts.members}
          submit={async (filled) => {
            const id = filled.text('project');
            setShown({ id, name: names(id) });
          }}
        >
          <Reference of="projects" name="project" label={texts.open} hint={texts.openHint} required />
        </Form>
      )}
      {shown !== undefined && (
        <Members key={shown.id} of={shown} mayChange={mayChange} close={() => setShown(undefined)} />
      )}
    </Section>
  );
}
