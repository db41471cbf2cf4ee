import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { gateway } from '../../api/client.ts';
import type { SettingsChange } from '../../api/resources.ts';
import { inSeconds, secondsFrom } from '../../parts/format.ts';
import { PolicySelect, policyFrom } from '../../parts/policy-select.tsx';
import { t } from '../../texts/index.ts';
import { Show } from '../../ui/feedback.tsx';
import { Field, Input, Select, Textarea } from '../../ui/field.tsx';
import { Fields, Form, WIDE } from '../../ui/form.tsx';
import { type FilledFields, hasMembers } from '../../ui/form-values.ts';
import { Card, Page, Section } from '../../ui/page.tsx';
import { LoginSettings } from './login-settings.tsx';
import { type SettingsProps, storedSettings } from './stored-settings.ts';

const texts = t.settings;

export default function SettingsPage() {
  const settings = useQuery({
    queryKey: ['settings'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/settings', { signal })).data,
  });
  const save = async (body: SettingsChange) => {
    await gateway.PATCH('/admin/settings', { body });
    await settings.refetch();
  };
  return (
    <Page title={t.admin.tabs.settings} about={texts.about}>
      <Show of={settings}>
        {(now) => (
          <>
            <General settings={now} save={save} />
            <RoutingSettings settings={now} save={save} />
            <Queue settings={now} save={save} />
            <Membership settings={now} save={save} />
            <LoginSettings settings={now} save={save} />
          </>
        )}
      </Show>
    </Page>
  );
}

interface GroupProps {
  title: string;
  about?: string;
  bodyOf: (filled: FilledFields) => SettingsChange;
  save: SettingsProps['save'];
  children: ReactNode;
}

/** Settings that are saved together. */
function Group({ title, about, bodyOf, save, children }: GroupProps) {
  const [saved, setSaved] = useState(false);
  return (
    <Section title={title}>
      <Card className="flex flex-col gap-4">
        {about !== undefined && <p className="text-muted text-sm">{about}</p>}
        <Form
          action={t.common.save}
          submit={async (filled) => {
            setSaved(false);
            const change = await filled.changesOver(bodyOf, storedSettings);
            if (hasMembers(change)) await save(change);
            setSaved(true);
          }}
        >
          {children}
          <p role="status" className={`text-good text-sm ${WIDE}`}>
            {saved && texts.saved}
          </p>
        </Form>
      </Card>
    </Section>
  );
}

function General({ settings, save }: SettingsProps) {
  const bodyOf = (filled: FilledFields): SettingsChange => ({
    public_url: filled.optional('public_url'),
    default_trust: filled.text('trust') === 'marked' ? 'marked' : 'admitted',
  });
  return (
    <Group title={texts.general} bodyOf={bodyOf} save={save}>
      <Field label={texts.publicUrl} hint={texts.publicUrlHint}>
        {(id) => (
          <Input id={id} name="public_url" type="url" placeholder="https://" defaultValue={settings.public_url ?? ''} />
        )}
      </Field>
      <Field label={texts.trust} hint={texts.trustHint}>
        {(id) => (
          <Select id={id} name="trust" defaultValue={settings.default_trust}>
            <option value="admitted">{texts.trusts.admitted}</option>
            <option value="marked">{texts.trusts.marked}</option>
          </Select>
        )}
      </Field>
    </Group>
  );
}

const CLASSES = ['standard', 'reasoning'] as const;

function RoutingSettings({ settings, save }: SettingsProps) {
  const { routing } = settings;
  const bodyOf = (filled: FilledFields): SettingsChange => {
    const policy = policyFrom(filled);
    const timeouts = Object.fromEntries(CLASSES.flatMap((kind) => timeoutsOf(kind, filled)));
    const own = {
      ...(policy !== null && { policy }),
      ...(Object.keys(timeouts).length > 0 && { timeouts }),
    };
    const share = filled.number('share');
    return {
      routing: Object.keys(own).length === 0 ? null : own,
      max_retries: filled.number('retries'),
      retry_share: share === null ? null : share / 100,
    };
  };
  return (
    <Group title={texts.routing} bodyOf={bodyOf} save={save}>
      <PolicySelect name="policy" defaultValue={routing.policy ?? null} none={texts.policyDefault} />
      <Field label={texts.retries} hint={texts.retriesHint}>
        {(id) => <Input id={id} name="retries" type="number" min="0" max="10" defaultValue={settings.max_retries} />}
      </Field>
      <Field label={texts.share} hint={texts.shareHint}>
        {(id) => (
          <Input
            id={id}
            name="share"
            type="number"
            min="0"
            max="100"
            step="any"
            defaultValue={Math.round(settings.retry_share * 1000) / 10}
          />
        )}
      </Field>
      {CLASSES.map((kind) => (
        <Fields key={kind} legend={texts.classes[kind]}>
          <Seconds
            name={`${kind}_first`}
            label={texts.firstByte}
            ms={routing.timeouts?.[kind]?.first_byte_ms}
            placeholder={kind === 'standard' ? '900' : '1800'}
          />
          <Seconds
            name={`${kind}_stall`}
            label={texts.stall}
            ms={routing.timeouts?.[kind]?.stall_ms}
            placeholder={kind === 'standard' ? '120' : '600'}
          />
        </Fields>
      ))}
    </Group>
  );
}

function timeoutsOf(kind: (typeof CLASSES)[number], filled: FilledFields) {
  const [first, stall] = [secondsFrom(filled.number(`${kind}_first`)), secondsFrom(filled.number(`${kind}_stall`))];
  const set = { ...(first !== null && { first_byte_ms: first }), ...(stall !== null && { stall_ms: stall }) };
  return Object.keys(set).length === 0 ? [] : [[kind, set] as const];
}

interface SecondsProps {
  name: string;
  label: string;
  ms: number | undefined;
  placeholder?: string;
  min?: string;
  hint?: string;
}

function Seconds({ name, label, ms, placeholder, min = '0.001', hint }: SecondsProps) {
  return (
    <Field label={label} {...(hint !== undefined && { hint })}>
      {(id) => (
        <Input
          id={id}
          name={name}
          type="number"
          min={min}
          step="any"
          placeholder={placeholder}
          defaultValue={inSeconds(ms)}
        />
      )}
    </Field>
  );
}

function Queue({ settings, save }: SettingsProps) {
  const { queue } = settings;
  const bodyOf = (filled: FilledFields): SettingsChange => {
    const [unary, stream] = [secondsFrom(filled.number('unary')), secondsFrom(filled.number('stream'))];
    const places = filled.number('places');
    const weights = filled.pairs('weights')?.map(([project, weight]) => [project, Number(weight)] as const) ?? [];
    return {
      queue: {
        ...(unary !== null && { unary_ms: unary }),
        ...(stream !== null && { stream_ms: stream }),
        ...(places !== null && { places }),
        weights: Object.fromEntries(weights),
      },
    };
  };
  return (
    <Group title={texts.queue} about={texts.queueAbout} bodyOf={bodyOf} save={save}>
      <Seconds name="unary" label={texts.unary} ms={queue.unary_ms} min="0" />
      <Seconds name="stream" label={texts.stream} ms={queue.stream_ms} min="0" />
      <Field label={texts.places}>
        {(id) => <Input id={id} name="places" type="number" min="1" max="10000" defaultValue={queue.places} />}
      </Field>
      <Field label={texts.weights} hint={texts.weightsHint} className={WIDE}>
        {(id) => (
          <Textarea
            id={id}
            name="weights"
            rows={2}
            defaultValue={Object.entries(queue.weights ?? {})
              .map(([project, weight]) => `${project} = ${weight}`)
              .join('\n')}
          />
        )}
      </Field>
    </Group>
  );
}

const HOUR_MS = 3_600_000;

function Membership({ settings, save }: SettingsProps) {
  const { membership } = settings;
  const bodyOf = (filled: FilledFields): SettingsChange => {
    const times = {
      probe_ms: secondsFrom(filled.number('probe')),
      reconnect_ms: secondsFrom(filled.number('reconnect')),
      grace_ms: secondsFrom(filled.number('grace')),
    };
    const hours = filled.number('retention');
    const set = Object.entries({ ...times, retention_ms: hours === null ? null : Math.round(hours * HOUR_MS) });
    return {
      membership: Object.fromEntries(set.filter(([, ms]) => ms !== null)),
      minimum_agent_version: filled.optional('minimum'),
    };
  };
  return (
    <Group title={texts.membership} about={texts.membershipAbout} bodyOf={bodyOf} save={save}>
      <Seconds name="probe" label={texts.probe} hint={texts.probeHint} ms={membership.probe_ms} min="0.5" />
      <Seconds name="reconnect" label={texts.reconnect} ms={membership.reconnect_ms} min="1" />
      <Seconds name="grace" label={texts.grace} ms={membership.grace_ms} min="2" />
      <Field label={texts.retention}>
        {(id) => (
          <Input
            id={id}
            name="retention"
            type="number"
            min="1"
            max="720"
            step="any"
            defaultValue={membership.retention_ms / HOUR_MS}
          />
        )}
      </Field>
      <Field label={texts.minimum} hint={texts.minimumHint}>
        {(id) => (
          <Input id={id} name="minimum" placeholder="0.2.0" defaultValue={settings.minimum_agent_version ?? ''} />
        )}
      </Field>
    </Group>
  );
}
