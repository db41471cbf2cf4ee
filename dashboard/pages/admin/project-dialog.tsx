import { gateway } from '../../api/client.ts';
import type { Project } from '../../api/resources.ts';
import { limitsFromForm, restrictionsFrom } from '../../parts/key-restrictions.ts';
import { LimitFields, NarrowingFields, ServingFields, servingFrom } from '../../parts/limit-fields.tsx';
import { t } from '../../texts/index.ts';
import { Field, Input } from '../../ui/field.tsx';
import { Checkbox, MoreFields, WIDE } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import { type FilledFields, hasMembers } from '../../ui/form-values.ts';

const texts = t.projects;

interface ProjectDialogProps {
  /** The edited project; undefined: a new one is created. */
  project: Project | undefined;
  saved: () => unknown;
  close: () => void;
}

export function ProjectDialog({ project, saved, close }: ProjectDialogProps) {
  const { form } = texts;
  const submit = async (filled: FilledFields) => {
    const bodyFrom = (one: FilledFields) => bodyOf(one, project);
    if (project === undefined) return gateway.POST('/admin/projects', { body: bodyFrom(filled) });
    const at = { params: { path: { id: project.id } } };
    const body = await filled.changesOver(bodyFrom, async () => (await gateway.GET('/admin/projects/{id}', at)).data);
    return hasMembers(body) ? gateway.PATCH('/admin/projects/{id}', { ...at, body }) : undefined;
  };
  return (
    <FormDialog
      title={project === undefined ? texts.create : texts.editTitle(project.name)}
      action={project === undefined ? t.common.create : t.common.save}
      submit={submit}
      saved={saved}
      close={close}
    >
      <Field label={form.name} className={WIDE}>
        {(id) => <Input id={id} name="name" required maxLength={200} defaultValue={project?.name ?? ''} />}
      </Field>
      <LimitFields of={project} />
      <NarrowingFields of={project} />
      <ServingFields of={project} />
      <MoreFields title={form.research}>
        <Checkbox name="trace" label={form.trace} hint={form.traceHint} defaultChecked={project?.trace ?? false} />
        <Checkbox
          name="trace_prefixes"
          label={form.prefixes}
          hint={form.prefixesHint}
          defaultChecked={project?.trace_prefixes ?? false}
        />
      </MoreFields>
    </FormDialog>
  );
}

function bodyOf(filled: FilledFields, before: Project | undefined) {
  return {
    name: filled.text('name'),
    ...limitsFromForm(filled, before),
    ...restrictionsFrom(filled),
    ...servingFrom(filled),
    trace: filled.checked('trace'),
    trace_prefixes: filled.checked('trace_prefixes'),
  };
}
