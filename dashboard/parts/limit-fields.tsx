import type { Project } from '../api/resources.ts';
import { t } from '../texts/index.ts';
import { Field, Input, Select, Textarea } from '../ui/field.tsx';
import { Checkbox, Fields, type Filled, MoreFields, WIDE } from '../ui/form.tsx';
import { PolicySelect, policyFrom } from './policy-select.tsx';

const texts = t.narrowing;

/** What a key and a project have in common; absent while one is made. */
type Narrowed = Pick<
  Project,
  'limits' | 'models' | 'trusted_providers' | 'regions' | 'tiers' | 'no_track' | 'resume' | 'routing'
>;
type Limited = Pick<Narrowed, 'limits'>;
interface NarrowingProps {
  of: Narrowed | undefined;
}

const LIMITS = [
  'requests_per_minute',
  'tokens_per_minute',
  'concurrent_requests',
  'tokens_per_month',
  'gpu_seconds_per_month',
  'reasoning_tokens_per_request',
] as const;
const TIERS = ['stable', 'volatile'] as const;

export function LimitFields({ of, hint = texts.limitsHint }: { of: Limited | undefined; hint?: string }) {
  return (
    <Fields legend={texts.limitsTitle} hint={hint}>
      {LIMITS.map((name) => (
        <Field key={name} label={texts.limits[name]}>
          {(id) => <Input id={id} name={name} type="number" min="1" defaultValue={of?.limits?.[name] ?? ''} />}
        </Field>
      ))}
    </Fields>
  );
}

/** Which models and nodes may be used. Empty fields narrow nothing. */
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
      <Field label={texts.regions} hint={texts.listHint}>
        {(id) => <Input id={id} name="regions" defaultValue={of?.regions?.join(', ') ?? ''} />}
      </Field>
      <Field label={texts.tiers} hint={texts.tiersHint}>
        {(id) => (
          <Select id={id} name="tiers" defaultValue={of?.tiers?.length === 1 ? of.tiers[0] : ''}>
            <option value="">{texts.anyTier}</option>
            {TIERS.map((tier) => (
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
    <Field label={label} hint={hint} className={WIDE}>
      {(id) => <Textarea id={id} name={name} rows={2} defaultValue={of?.join('\n') ?? ''} />}
    </Field>
  );
}

/** How its requests are served: only operators see these. */
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

/** With the limits of models that `before` has: no field shows them. */
export function limitsFrom(filled: Filled, before: Limited | undefined) {
  const set = LIMITS.flatMap((name) => {
    const value = filled.number(name);
    return value === null ? [] : [[name, value] as const];
  });
  const models = before?.limits?.models;
  const limits = { ...Object.fromEntries(set), ...(models !== undefined && { models }) };
  return { limits: Object.keys(limits).length === 0 ? null : limits };
}

export function narrowingFrom(filled: Filled) {
  return {
    models: filled.list('models'),
    trusted_providers: filled.list('trusted_providers'),
    regions: filled.list('regions'),
    tiers: TIERS.some((tier) => tier === filled.text('tiers'))
      ? TIERS.filter((tier) => tier === filled.text('tiers'))
      : null,
  };
}

/** @throws Error for a line that names no value */
export function servingFrom(filled: Filled) {
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

/** In a few words, for a table. */
export function limitWords(limits: Narrowed['limits']): string {
  const words = LIMITS.flatMap((name) => {
    const value = limits?.[name];
    return value === undefined ? [] : [texts.limitWords[name](value)];
  });
  return words.join(', ') || t.common.none;
}
