import { useState } from 'react';
import { gateway } from '../../api/client.ts';
import type { User } from '../../api/resources.ts';
import { limitsFromForm } from '../../parts/key-restrictions.ts';
import { LimitFields } from '../../parts/limit-fields.tsx';
import { Reference } from '../../parts/reference-select.tsx';
import { t } from '../../texts/index.ts';
import { Field, Input, Select } from '../../ui/field.tsx';
import { MoreFields } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import { type FilledFields, hasMembers } from '../../ui/form-values.ts';

const texts = t.users;
const ROLES = ['consumer', 'provider', 'operator'] as const;
type Role = (typeof ROLES)[number];

interface UserDialogProps {
  /** The edited user; undefined: a new one is created. */
  user: User | undefined;
  saved: () => unknown;
  close: () => void;
}

export function UserDialog({ user, saved, close }: UserDialogProps) {
  const [role, setRole] = useState<Role>(user?.role ?? 'consumer');
  const { form } = texts;
  const submit = async (filled: FilledFields) => {
    const rights = { role, provider: role === 'provider' ? filled.optional('provider') : null };
    const bodyFrom = (one: FilledFields) => ({ ...commonOf(one), ...limitsFromForm(one, user) });
    if (user === undefined) {
      const identity = { issuer: filled.optional('issuer'), subject: filled.optional('subject') };
      return gateway.POST('/admin/users', { body: { ...bodyFrom(filled), ...rights, ...identity } });
    }
    const { role: before, provider = null } = user;
    const isSame = before === rights.role && provider === rights.provider;
    const at = { params: { path: { id: user.id } } };
    const changes = await filled.changesOver(bodyFrom, async () => (await gateway.GET('/admin/users/{id}', at)).data);
    const body = { ...changes, ...(!isSame && rights) };
    return hasMembers(body) ? gateway.PATCH('/admin/users/{id}', { ...at, body }) : undefined;
  };
  return (
    <FormDialog
      title={user === undefined ? texts.create : texts.editTitle(user.name)}
      action={user === undefined ? t.common.create : t.common.save}
      submit={submit}
      saved={saved}
      close={close}
    >
      <Field label={form.name}>
        {(id) => <Input id={id} name="name" required maxLength={200} defaultValue={user?.name ?? ''} />}
      </Field>
      <Field label={form.email}>
        {(id) => <Input id={id} name="email" type="email" maxLength={320} defaultValue={user?.email ?? ''} />}
      </Field>
      <Field label={form.role} hint={form.roleHint}>
        {(id) => (
          <Select
            id={id}
            value={role}
            onChange={({ currentTarget: { value } }) => setRole(ROLES.find((one) => one === value) ?? 'consumer')}
          >
            {ROLES.map((one) => (
              <option key={one} value={one}>
                {texts.roles[one]}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <Reference
        of="projects"
        name="project"
        label={form.project}
        none={form.noProject}
        defaultValue={user?.project_id ?? null}
      />
      {role === 'provider' && (
        <Reference
          of="providers"
          name="provider"
          label={form.provider}
          hint={form.providerHint}
          required
          defaultValue={user?.provider ?? null}
        />
      )}
      <LimitFields of={user} hint={form.limitsHint} />
      {user === undefined && (
        <MoreFields title={form.institution}>
          <Field label={form.issuer} hint={form.issuerHint}>
            {(id) => <Input id={id} name="issuer" type="url" placeholder="https://" />}
          </Field>
          <Field label={form.subject} hint={form.subjectHint}>
            {(id) => <Input id={id} name="subject" maxLength={512} />}
          </Field>
        </MoreFields>
      )}
    </FormDialog>
  );
}

function commonOf(filled: FilledFields) {
  return { name: filled.text('name'), email: filled.optional('email'), project_id: filled.optional('project') };
}
