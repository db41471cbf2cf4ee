import { useState } from 'react';
import { gateway } from '../../api/client.ts';
import type { Key, NewKey } from '../../api/resources.ts';
import { limitsFromForm, restrictionsFrom } from '../../parts/key-restrictions.ts';
import { LimitFields, NarrowingFields, ServingFields, servingFrom } from '../../parts/limit-fields.tsx';
import { OwnProject } from '../../parts/project-select.tsx';
import { Reference } from '../../parts/reference-select.tsx';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Input, Select } from '../../ui/field.tsx';
import { Fields, Form } from '../../ui/form.tsx';
import { type FilledFields, hasMembers } from '../../ui/form-values.ts';

const texts = t.keys;
const ROLES = ['consumer', 'provider', 'operator'] as const;
type Role = (typeof ROLES)[number];

interface KeyDialogProps {
  /** The edited key; undefined: a new one is created. */
  of: Key | undefined;
  /** The owner that is selected at first, if an operator creates a key. */
  owner?: string | null;
  project?: string | null;
  /** Called when the key is stored. `secret`: the secret of a new key. */
  saved: (secret: string | undefined) => unknown;
  close: () => void;
}

/** Operators set limits and owners; other users create keys with at most their own rights. */
export function KeyDialog({ of, owner = null, project = null, saved, close }: KeyDialogProps) {
  const isOperator = useMe().role === 'operator';
  const { form } = texts;
  const submit = async (filled: FilledFields) => {
    const bodyFrom = (one: FilledFields) => bodyOf(one, isOperator, of);
    if (of === undefined) {
      const body = bodyFrom(filled);
      const { data } = await gateway.POST('/admin/keys', { body: { ...body, ...ownerOf(filled, isOperator) } });
      await saved(data !== undefined && 'key' in data ? data.key : undefined);
    } else {
      const at = { params: { path: { id: of.id } } };
      const body = await filled.changesOver(bodyFrom, async () => (await gateway.GET('/admin/keys/{id}', at)).data);
      if (hasMembers(body)) await gateway.PATCH('/admin/keys/{id}', { ...at, body });
      await saved(undefined);
    }
  };
  return (
    <Dialog title={of === undefined ? texts.create : texts.editTitle(of.name)} close={close}>
      <Form action={of === undefined ? t.common.create : t.common.save} submit={submit} close={close}>
        <Field label={form.name} hint={form.nameHint}>
          {(id) => <Input id={id} name="name" required maxLength={200} defaultValue={of?.name ?? ''} />}
        </Field>
        <Field label={form.expires} hint={form.expiresHint}>
          {(id) => <Input id={id} name="expires" type="date" defaultValue={of?.expires_at?.slice(0, 10) ?? ''} />}
        </Field>
        {isOperator && of === undefined && <OwnerFields owner={owner} project={project} />}
        {!isOperator && of === undefined && <OwnProject label={form.project} />}
        {isOperator && <LimitFields of={of} />}
        <NarrowingFields of={of} />
        {isOperator && <ServingFields of={of} />}
      </Form>
    </Dialog>
  );
}

/** The owner, project and role of a new key. They cannot be changed later. */
function OwnerFields({ owner, project }: { owner: string | null; project: string | null }) {
  const [role, setRole] = useState<Role>('consumer');
  const { form } = texts;
  return (
    <Fields legend={form.belongs}>
      <Reference of="users" name="owner" label={form.owner} hint={form.ownerHint} defaultValue={owner} />
      <Reference of="projects" name="project" label={form.project} none={form.usersProject} defaultValue={project} />
      <Field label={form.role} hint={form.roleHint}>
        {(id) => (
          <Select
            id={id}
            name="role"
            value={role}
            onChange={({ currentTarget: { value } }) => setRole(ROLES.find((one) => one === value) ?? 'consumer')}
          >
            {ROLES.map((one) => (
              <option key={one} value={one}>
                {t.users.roles[one]}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {role === 'provider' && <Reference of="providers" name="provider" label={form.provider} required />}
    </Fields>
  );
}

function bodyOf(filled: FilledFields, isOperator: boolean, before: Key | undefined) {
  const expires = filled.text('expires');
  return {
    name: filled.text('name'),
    ...restrictionsFrom(filled),
    ...(isOperator && { ...limitsFromForm(filled, before), ...servingFrom(filled) }),
    // The key is valid until the end of its last day.
    expires_at: expires === '' ? null : `${expires}T23:59:59Z`,
  };
}

function ownerOf(filled: FilledFields, isOperator: boolean): Partial<NewKey> {
  const own = filled.optional('project');
  if (!isOperator) return own === null ? {} : { project_id: own };
  return {
    user_id: filled.optional('owner'),
    project_id: filled.optional('project'),
    role: ROLES.find((one) => one === filled.text('role')) ?? 'consumer',
    provider: filled.optional('provider'),
  };
}
