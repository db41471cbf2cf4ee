import { gateway } from '../../api/client.ts';
import type { ModelRow, SettableModel } from '../../api/resources.ts';
import { inSeconds, secondsFrom } from '../../parts/format.ts';
import { PolicySelect, policyFrom } from '../../parts/policy-select.tsx';
import { t } from '../../texts/index.ts';
import { Field, Input, Select } from '../../ui/field.tsx';
import { Checkbox, WIDE } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import { type FilledFields, hasMembers } from '../../ui/form-values.ts';

const texts = t.routing;
const CLASSES = ['standard', 'reasoning'] as const;

interface ModelSettingsDialogProps {
  model: string;
  /** The model's stored settings; undefined: there are none. */
  settings: ModelRow | undefined;
  saved: () => unknown;
  close: () => void;
}

export function ModelSettingsDialog({ model, settings, saved, close }: ModelSettingsDialogProps) {
  const { form } = texts;
  const submit = async (filled: FilledFields) => {
    const at = { params: { path: { id: model } } };
    let stored: ModelRow | undefined;
    const changes = await filled.changesOver(bodyOf, async () => {
      stored = (await gateway.GET('/admin/models')).data?.data.find(({ id }) => id === model);
      return stored;
    });
    if (!hasMembers(changes)) return;
    // A PUT replaces everything, so it contains the stored settings and the changes.
    await gateway.PUT('/admin/models/{id}', { ...at, body: { ...settable(stored), ...changes } });
  };
  return (
    <FormDialog title={texts.title(model)} submit={submit} saved={saved} close={close}>
      <PolicySelect name="policy" defaultValue={settings?.policy ?? null} none={t.narrowing.gatewaysPolicy} />
      <Field label={form.class} hint={form.classHint}>
        {(id) => (
          <Select id={id} name="class" defaultValue={settings?.class ?? 'standard'}>
            {CLASSES.map((one) => (
              <option key={one} value={one}>
                {form.classes[one]}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <Field label={form.aliases} hint={form.aliasesHint} className={WIDE}>
        {(id) => <Input id={id} name="aliases" defaultValue={settings?.aliases.join(', ') ?? ''} />}
      </Field>
      <Field label={form.fallbacks} hint={form.fallbacksHint} className={WIDE}>
        {(id) => <Input id={id} name="fallbacks" defaultValue={settings?.fallbacks.join(', ') ?? ''} />}
      </Field>
      <Seconds name="first_byte" label={form.firstByte} value={settings?.first_byte_ms} />
      <Seconds name="stall" label={form.stall} value={settings?.stall_ms} />
      <Field label={form.retries} hint={form.asGateway}>
        {(id) => (
          <Input id={id} name="retries" type="number" min="0" max="10" defaultValue={settings?.max_retries ?? ''} />
        )}
      </Field>
      <Checkbox
        name="private"
        label={form.private}
        hint={form.privateHint}
        defaultChecked={settings?.private ?? false}
      />
    </FormDialog>
  );
}

interface SecondsProps {
  name: string;
  label: string;
  /** The stored time in milliseconds. The field shows it in seconds. */
  value: number | null | undefined;
}

function Seconds({ name, label, value }: SecondsProps) {
  return (
    <Field label={label} hint={texts.form.asGateway}>
      {(id) => <Input id={id} name={name} type="number" min="0.001" step="any" defaultValue={inSeconds(value)} />}
    </Field>
  );
}

/** The stored settings that a PUT accepts. The compiler reports a missing one. */
function settable(stored: ModelRow | undefined): Required<SettableModel> | undefined {
  if (stored === undefined) return undefined;
  const { object: _, id: __, updated_at: ___, ...rest } = stored;
  return rest;
}

/** An empty field restores the default. */
function bodyOf(filled: FilledFields) {
  return {
    policy: policyFrom(filled),
    class: CLASSES.find((one) => one === filled.text('class')) ?? 'standard',
    aliases: filled.list('aliases') ?? [],
    fallbacks: filled.list('fallbacks') ?? [],
    first_byte_ms: secondsFrom(filled.number('first_byte')),
    stall_ms: secondsFrom(filled.number('stall')),
    max_retries: filled.number('retries'),
    private: filled.checked('private'),
  };
}
