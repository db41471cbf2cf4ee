import { useQuery } from '@tanstack/react-query';
import { gateway } from '../api/client.ts';
import { t } from '../texts/index.ts';
import { Field, Select } from '../ui/field.tsx';

/** Chooses one of the user's projects. Renders nothing if there is no choice. */
export function OwnProject({ label }: { label: string }) {
  const mine = useQuery({
    queryKey: ['my-projects'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/me/projects', { signal })).data?.data ?? [],
  });
  const projects = mine.data ?? [];
  const home = projects.find((project) => project.home);
  const chosen = home ?? projects[0];
  if (chosen === undefined || (projects.length === 1 && home !== undefined)) return null;
  return (
    <Field label={label}>
      {(id) => (
        <Select id={id} name="project" defaultValue={chosen.id}>
          {home === undefined && <option value="">{t.common.none}</option>}
          {projects.map((project) => (
            <option key={project.id} value={project.id}>
              {project.name}
            </option>
          ))}
        </Select>
      )}
    </Field>
  );
}
