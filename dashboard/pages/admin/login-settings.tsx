import { useMemo, useState } from 'react';
import { gatewayUrl } from '../../api/base-path.ts';
import type { Settings } from '../../api/resources.ts';
import { RowMenu } from '../../parts/resource-list.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm, Dialog } from '../../ui/dialog.tsx';
import { Empty } from '../../ui/feedback.tsx';
import { Field, Input, Select, Textarea } from '../../ui/field.tsx';
import { Form, MoreFields, WIDE } from '../../ui/form.tsx';
import { type FilledFields, hasMembers } from '../../ui/form-values.ts';
import { Section } from '../../ui/page.tsx';
import { type Column, DataTable } from '../../ui/table.tsx';
import { type SettingsProps, storedSettings } from './stored-settings.ts';

const texts = t.settings.login;
const ADMITS = ['known', 'mapped', 'everybody'] as const;

type Issuer = Settings['oidc'][number];
type Roles = NonNullable<Issuer['roles']>;

/** Identity providers; their users may log in. */
export function LoginSettings({ settings, save }: SettingsProps) {
  const { oidc } = settings;
  /** The edited identity provider; null: a new one is added; undefined: none is edited. */
  const [edited, setEdited] = useState<Issuer | null>();
  const [removed, setRemoved] = useState<Issuer>();
  const columns = useMemo(() => columnsOf(setEdited, setRemoved), []);
  return (
    <Section title={texts.title} actions={<Button onClick={() => setEdited(null)}>{texts.create}</Button>}>
      {oidc.length === 0 ? (
        <Empty>{texts.none}</Empty>
      ) : (
        <DataTable label={texts.title} rows={oidc} columns={columns} rowId={({ issuer }) => issuer} />
      )}
      {edited !== undefined && (
        <IssuerDialog
          issuer={edited ?? undefined}
          gatewayUrl={settings.public_url ?? gatewayUrl}
          save={(oidc) => save({ oidc })}
          close={() => setEdited(undefined)}
        />
      )}
      {removed && (
        <Confirm
          title={texts.removeTitle(removed.name)}
          action={t.peers.remove}
          act={async () => save({ oidc: (await storedIssuers()).filter(({ issuer }) => issuer !== removed.issuer) })}
          close={() => setRemoved(undefined)}
        >
          {texts.removeFollows}
        </Confirm>
      )}
    </Section>
  );
}

function columnsOf(edit: (issuer: Issuer) => void, remove: (issuer: Issuer) => void): Column<Issuer>[] {
  const { columns } = texts;
  return [
    { id: 'name', header: columns.name, cell: ({ name }) => name },
    { id: 'issuer', header: columns.issuer, cell: ({ issuer }) => issuer },
    { id: 'admits', header: columns.admits, cell: ({ admits }) => texts.admits[admits ?? 'known'] },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: (issuer) => (
        <RowMenu
          name={issuer.name}
          actions={[
            { label: t.admin.edit, act: () => edit(issuer) },
            { label: t.peers.remove, act: () => remove(issuer), danger: true },
          ]}
        />
      ),
    },
  ];
}

interface IssuerDialogProps {
  issuer: Issuer | undefined;
  gatewayUrl: string;
  save: (issuers: Issuer[]) => Promise<void>;
  close: () => void;
}

/** Reads the stored list. A PUT replaces the whole list, and another window may have changed another entry. */
const storedIssuers = async () => (await storedSettings())?.oidc ?? [];

function IssuerDialog({ issuer, gatewayUrl, save, close }: IssuerDialogProps) {
  const { form } = texts;
  const submit = async (filled: FilledFields) => {
    if (issuer === undefined) return save([...(await storedIssuers()), issuerFrom(filled)]);
    let stored: Issuer[] = [];
    const changes = await filled.changesOver(issuerFrom, async () => {
      stored = await storedIssuers();
      return stored.find((one) => one.issuer === issuer.issuer);
    });
    if (!hasMembers(changes)) return;
    if (!stored.some((one) => one.issuer === issuer.issuer)) throw new Error(t.form.changedElsewhere);
    await save(stored.map((one) => (one.issuer === issuer.issuer ? { ...one, ...changes } : one)));
  };
  return (
    <Dialog title={issuer === undefined ? texts.create : texts.edit(issuer.name)} close={close}>
      <Form action={t.common.save} submit={submit} close={close}>
        <p className={`text-muted text-sm ${WIDE}`}>
          {form.callback(`${gatewayUrl.replace(/\/$/, '')}/login/callback`)} {form.secret}
        </p>
        <Text name="name" label={form.name} hint={form.nameHint} of={issuer?.name} required />
        <Text name="client_id" label={form.client} of={issuer?.client_id} required />
        <Field label={form.issuer} hint={form.issuerHint} className={WIDE}>
          {(id) => (
            <Input
              id={id}
              name="issuer"
              type="url"
              required
              placeholder="https://"
              defaultValue={issuer?.issuer ?? ''}
            />
          )}
        </Field>
        <Field label={form.admits}>
          {(id) => (
            <Select id={id} name="admits" defaultValue={issuer?.admits ?? 'known'}>
              {ADMITS.map((one) => (
                <option key={one} value={one}>
                  {texts.admits[one]}
                </option>
              ))}
            </Select>
          )}
        </Field>
        <Text name="scope" label={form.scope} of={issuer?.scope ?? 'openid profile email'} />
        <Text name="audience" label={form.audience} hint={form.audienceHint} of={issuer?.audience} />
        <Count
          name="lapse_days"
          label={form.lapse}
          hint={form.lapseHint}
          most={3650}
          of={issuer === undefined ? 90 : issuer.lapse_days}
        />
        <Count
          name="confirm_hours"
          label={form.confirm}
          hint={form.confirmHint}
          most={8760}
          of={issuer?.confirm_hours}
        />
        <Mapping issuer={issuer} />
      </Form>
    </Dialog>
  );
}

interface TextProps {
  name: string;
  label: string;
  hint?: string;
  of: string | null | undefined;
  required?: boolean;
}

function Text({ name, label, hint, of, required = false }: TextProps) {
  return (
    <Field label={label} {...(hint !== undefined && { hint })}>
      {(id) => <Input id={id} name={name} required={required} maxLength={512} defaultValue={of ?? ''} />}
    </Field>
  );
}

interface CountProps {
  name: string;
  label: string;
  hint: string;
  most: number;
  of: number | null | undefined;
}

function Count({ name, label, hint, most, of }: CountProps) {
  return (
    <Field label={label} hint={hint}>
      {(id) => <Input id={id} name={name} type="number" min={1} max={most} defaultValue={of ?? ''} />}
    </Field>
  );
}

function Mapping({ issuer }: { issuer: Issuer | undefined }) {
  const { form } = texts;
  const roles = Object.entries(issuer?.roles ?? {}).map(
    ([value, { role, provider }]) => `${value} = ${provider === undefined ? role : `${role} ${provider}`}`,
  );
  const lines = (of: Record<string, string> | undefined) =>
    Object.entries(of ?? {})
      .map((pair) => pair.join(' = '))
      .join('\n');
  return (
    <MoreFields title={form.mapping}>
      <Text name="role_claim" label={form.roleClaim} hint={form.roleClaimHint} of={issuer?.role_claim} />
      <Text name="project_claim" label={form.projectClaim} of={issuer?.project_claim} />
      <Field label={form.roles} hint={form.rolesHint} className={WIDE}>
        {(id) => <Textarea id={id} name="roles" rows={3} defaultValue={roles.join('\n')} />}
      </Field>
      <Field label={form.projects} hint={form.projectsHint} className={WIDE}>
        {(id) => <Textarea id={id} name="projects" rows={2} defaultValue={lines(issuer?.projects)} />}
      </Field>
      <Field label={form.leads} hint={form.leadsHint} className={WIDE}>
        {(id) => <Textarea id={id} name="leads" rows={2} defaultValue={lines(issuer?.leads)} />}
      </Field>
      <Text name="group_claim" label={form.groupClaim} of={issuer?.group_claim} />
      <Field label={form.groups} hint={form.groupsHint} className={WIDE}>
        {(id) => <Textarea id={id} name="groups" rows={2} defaultValue={lines(issuer?.groups)} />}
      </Field>
    </MoreFields>
  );
}

/** @throws Error for an unknown role */
function issuerFrom(filled: FilledFields): Issuer {
  const roles = filled.pairs('roles') ?? [];
  return {
    name: filled.text('name'),
    issuer: filled.text('issuer'),
    client_id: filled.text('client_id'),
    audience: filled.optional('audience'),
    scope: filled.text('scope'),
    admits: ADMITS.find((one) => one === filled.text('admits')) ?? 'known',
    lapse_days: filled.number('lapse_days'),
    confirm_hours: filled.number('confirm_hours'),
    role_claim: filled.optional('role_claim'),
    roles: Object.fromEntries(roles.map(([value, role]) => [value, roleFrom(role)])),
    project_claim: filled.optional('project_claim'),
    projects: Object.fromEntries(filled.pairs('projects') ?? []),
    leads: Object.fromEntries(filled.pairs('leads') ?? []),
    group_claim: filled.optional('group_claim'),
    groups: Object.fromEntries(filled.pairs('groups') ?? []),
  };
}

/** Parses a role: `operator`, `consumer`, or `provider ID`. */
function roleFrom(text: string): Roles[string] {
  const [role, provider, ...rest] = text.split(/\s+/);
  if (rest.length === 0 && role === 'provider' && provider !== undefined) return { role, provider };
  if (provider === undefined && (role === 'operator' || role === 'consumer')) return { role };
  throw new Error(texts.form.badRole(text));
}
