import { t } from '../texts/index.ts';
import { Field, Input, Select, Textarea } from '../ui/field.tsx';
import { Checkbox, Fields, MoreFields, WIDE } from '../ui/form.tsx';
import type { FilledFields } from '../ui/form-values.ts';
import { LIMIT_FIELDS, NO_TIER, type Restricted, TIER_CHOICES, type WithLimits } from './key-restrictions.ts';
import { PolicySelect, policyFrom } from './policy-select.tsx';

const texts = t.narrowing;

interface NarrowingProps {
  of: Restricted | undefined;
}

export function LimitFields({ of, hint = texts.limitsHint }: { of: WithLimits | undefined; hint?: string }) {
  return (
    <Fields legend={texts.limitsTitle} hint={hint}>
      {LIMIT_FIELDS.map((name) => (
        <Field key={name} label={texts.limits[name]}>
          {(id) => <Input id={id} name={name} type="number" min="1" defaultValue={of?.limits?.[name] ?? ''} />}
        </Field>
      ))}
    </Fields>
  );
}

/** The allowed models and nodes. Empty fields restrict nothing. */
export function NarrowingFields({ of }: NarrowingProps) {
  return (
    <Fields legend={texts.title}>
      <ListField name="models" label={texts.models} hint={texts.modelsHint} of={of?.models} />
      <ListField
        name="trusted_providers"
        label={texts.providers}
        hint={texts.providersHint}
        of={of?.trusted_providers}
      />
      <div>
        <Field label={texts.regions} hint={texts.listHint}>
          {(id) => <Input id={id} name="regions" defaultValue={of?.regions?.join(', ') ?? ''} />}
        </Field>
        <Nothing name="regions" label={texts.regions} of={of?.regions} />
      </div>
      <Field label={texts.tiers} hint={texts.tiersHint}>
        {(id) => (
          <Select id={id} name="tiers" defaultValue={of?.tiers?.length === 0 ? NO_TIER : (of?.tiers?.join(' ') ?? '')}>
            <option value="">{texts.anyTier}</option>
            {of?.tiers?.length === 0 && <option value={NO_TIER}>{texts.noTier}</option>}
            {of?.tiers?.length === 2 && <option value={of.tiers.join(' ')}>{texts.bothTiers}</option>}
            {TIER_CHOICES.map((tier) => (
              <option key={tier} value={tier}>
                {texts.tierNames[tier]}
              </option>
            ))}
          </Select>
        )}
      </Field>
    </Fields>
  );
}

interface ListFieldProps {
  name: string;
  label: string;
  hint: string;
  of: readonly string[] | null | undefined;
}

function ListField({ name, label, hint, of }: ListFieldProps) {
  return (
    <div className={WIDE}>
      <Field label={label} hint={hint}>
        {(id) => <Textarea id={id} name={name} rows={2} defaultValue={of?.join('\n') ?? ''} />}
      </Field>
      <Nothing name={name} label={label} of={of} />
    </div>
  );
}

/**
 * A box that stands for an empty list, which allows nothing. An empty field allows everything. The box is shown only if
 * the key or project has an empty list.
 */
function Nothing({ name, label, of }: Omit<ListFieldProps, 'hint'>) {
  if (of?.length !== 0) return null;
  return <Checkbox name={`${name}_nothing`} label={texts.nothing(label)} defaultChecked />;
}

/** Fields that decide how the requests of a key or project are served. Only operators see them. */
export function ServingFields({ of }: NarrowingProps) {
  const { aliases, fallbacks } = of?.routing ?? {};
  return (
    <MoreFields title={texts.serving}>
      <PolicySelect name="policy" defaultValue={of?.routing?.policy ?? null} none={texts.gatewaysPolicy} />
      <span />
      <Field label={texts.aliases} hint={texts.aliasesHint}>
        {(id) => <Textarea id={id} name="aliases" rows={2} defaultValue={lines(aliases)} />}
      </Field>
      <Field label={texts.fallbacks} hint={texts.fallbacksHint}>
        {(id) => <Textarea id={id} name="fallbacks" rows={2} defaultValue={lines(fallbacks)} />}
      </Field>
      <Checkbox name="resume" label={texts.resume} hint={texts.resumeHint} defaultChecked={of?.resume ?? false} />
      <Checkbox name="no_track" label={texts.noTrack} hint={texts.noTrackHint} defaultChecked={of?.no_track ?? false} />
    </MoreFields>
  );
}

function lines(record: Readonly<Record<string, string | string[]>> | undefined): string {
  return Object.entries(record ?? {})
    .map(([name, value]) => `${name} = ${typeof value === 'string' ? value : value.join(', ')}`)
    .join('\n');
}

/** @throws Error for a line that names no value */
export function servingFrom(filled: FilledFields) {
  const [policy, aliases, fallbacks] = [policyFrom(filled), filled.pairs('aliases'), filled.pairs('fallbacks')];
  const routing = {
    ...(policy !== null && { policy }),
    ...(aliases !== null && { aliases: Object.fromEntries(aliases) }),
    ...(fallbacks !== null && {
      fallbacks: Object.fromEntries(fallbacks.map(([name, models]) => [name, models.split(/\s*,\s*/)])),
    }),
  };
  return {
    routing: Object.keys(routing).length === 0 ? null : routing,
    resume: filled.checked('resume'),
    no_track: filled.checked('no_track'),
  };
}
