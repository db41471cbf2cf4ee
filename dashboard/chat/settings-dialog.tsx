import { type ChangeEvent, type FormEvent, useEffect, useState } from 'react';
import { gatewayUrl } from '../api/base-path.ts';
import { t } from '../texts/index.ts';
import { Button, IconButton } from '../ui/button.tsx';
import { Copy } from '../ui/copy.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { Failure } from '../ui/feedback.tsx';
import { Field, Input, Select, Textarea } from '../ui/field.tsx';
import { Trash2 } from '../ui/icons.ts';
import { useAction } from '../ui/use-action.ts';
import { type ChatSettings, JSON_OBJECT, linkQuery, REASONING_EFFORTS, SEALED } from './chat-settings.ts';
import type { ConversationStore, Preset } from './conversation-store.ts';

const texts = t.chat.settings;

interface SettingsDialogProps {
  settings: ChatSettings;
  models: readonly string[];
  store: ConversationStore;
  change: (settings: ChatSettings) => void;
  apply: (preset: Preset) => void;
  close: () => void;
}

export function SettingsDialog({ settings, models, store, change, apply, close }: SettingsDialogProps) {
  const set = (name: keyof ChatSettings) => (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) =>
    change({ ...settings, [name]: event.currentTarget.value });
  const link = () => `${gatewayUrl}/#/chat?${linkQuery(models, settings)}`;
  return (
    <Dialog title={texts.title} close={close} footer={<Copy text={link} label={texts.link} />}>
      <div className="flex flex-col gap-5">
        <Field label={texts.system}>
          {(id) => <Textarea id={id} rows={4} value={settings.system} onChange={set('system')} />}
        </Field>
        <div className="grid gap-4 sm:grid-cols-3">
          <Field label={texts.temperature}>
            {(id) => (
              <Input
                id={id}
                type="number"
                min="0"
                max="2"
                step="0.1"
                value={settings.temperature}
                onChange={set('temperature')}
              />
            )}
          </Field>
          <Field label={texts.topP}>
            {(id) => (
              <Input id={id} type="number" min="0" max="1" step="0.05" value={settings.topP} onChange={set('topP')} />
            )}
          </Field>
          <Field label={texts.maxTokens}>
            {(id) => <Input id={id} type="number" min="1" value={settings.maxTokens} onChange={set('maxTokens')} />}
          </Field>
        </div>
        <AnswerFields settings={settings} change={change} />
        <Field label={texts.trusted} hint={texts.trustedHint}>
          {(id) => <Input id={id} value={settings.trusted} onChange={set('trusted')} placeholder="eth, psi@peer" />}
        </Field>
        <Choice
          label={t.chat.sealed.setting}
          hint={t.chat.sealed.means}
          checked={settings.sealed === SEALED}
          choose={(checked) => change({ ...settings, sealed: checked ? SEALED : '' })}
        />
        <p className="text-muted text-sm">{texts.engines}</p>
        <Presets settings={settings} model={models[0] ?? ''} store={store} apply={apply} />
      </div>
    </Dialog>
  );
}

/** Fields that change how the model answers, apart from the numbers of the first row. */
function AnswerFields({ settings, change }: Pick<SettingsDialogProps, 'settings' | 'change'>) {
  return (
    <>
      <div className="grid gap-4 sm:grid-cols-2">
        <Field label={texts.reasoningEffort}>
          {(id) => (
            <Select
              id={id}
              value={settings.reasoningEffort ?? ''}
              onChange={(event) => change({ ...settings, reasoningEffort: event.currentTarget.value })}
            >
              <option value="">{texts.byDefault}</option>
              {REASONING_EFFORTS.map((effort) => (
                <option key={effort} value={effort}>
                  {texts.efforts[effort]}
                </option>
              ))}
            </Select>
          )}
        </Field>
        <Field label={texts.seed} hint={texts.seedHint}>
          {(id) => (
            <Input
              id={id}
              type="number"
              step="1"
              value={settings.seed ?? ''}
              onChange={(event) => change({ ...settings, seed: event.currentTarget.value })}
            />
          )}
        </Field>
      </div>
      <Field label={texts.stop} hint={texts.stopHint}>
        {(id) => (
          <Textarea
            id={id}
            rows={2}
            value={settings.stop ?? ''}
            onChange={(event) => change({ ...settings, stop: event.currentTarget.value })}
          />
        )}
      </Field>
      <Choice
        label={texts.json}
        hint={texts.jsonHint}
        checked={settings.form === JSON_OBJECT}
        choose={(checked) => change({ ...settings, form: checked ? JSON_OBJECT : '' })}
      />
      <p className="text-muted text-sm">{texts.noResume}</p>
    </>
  );
}

interface ChoiceProps {
  label: string;
  hint: string;
  checked: boolean;
  choose: (checked: boolean) => void;
}

function Choice({ label, hint, checked, choose }: ChoiceProps) {
  return (
    <label className="flex items-start gap-2 text-sm">
      <input
        type="checkbox"
        className="mt-0.5 size-4 accent-accent"
        checked={checked}
        onChange={(event) => choose(event.currentTarget.checked)}
      />
      <span className="flex flex-col">
        {label}
        <small className="text-muted text-xs">{hint}</small>
      </span>
    </label>
  );
}

type PresetsProps = Pick<SettingsDialogProps, 'settings' | 'store' | 'apply'> & { model: string };

function Presets({ settings, model, store, apply }: PresetsProps) {
  const [presets, setPresets] = useState<readonly Preset[]>([]);
  const load = () => void store.presets().then(setPresets, () => setPresets([]));
  useEffect(load, [store]);
  const { act, error } = useAction(load);
  const save = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const name = String(new FormData(form).get('name') ?? '').trim();
    if (name === '') return;
    act(store.savePreset({ name, model, settings }).then(() => form.reset()));
  };
  return (
    <section className="flex flex-col gap-3 border-line border-t pt-4" aria-label={texts.presets}>
      <h3 className="font-semibold">{texts.presets}</h3>
      {presets.length === 0 && <p className="text-muted text-sm">{texts.noPresets}</p>}
      <ul className="flex flex-col gap-1">
        {presets.map((preset) => (
          <li key={preset.name} className="flex items-center gap-2">
            <button
              type="button"
              aria-label={texts.applyPreset(preset.name)}
              className="flex min-w-0 flex-1 items-baseline gap-3 rounded-sm px-2 py-1.5 text-left hover:bg-hover"
              onClick={() => apply(preset)}
            >
              <span className="font-medium text-sm">{preset.name}</span>
              <span className="min-w-0 truncate text-muted text-xs">{preset.settings.system || preset.model}</span>
            </button>
            <IconButton label={texts.deletePreset(preset.name)} onClick={() => act(store.deletePreset(preset.name))}>
              <Trash2 />
            </IconButton>
          </li>
        ))}
      </ul>
      {error !== undefined && <Failure error={error} />}
      <form onSubmit={save} className="flex items-end gap-2">
        <Field label={texts.presetName} className="flex-1">
          {(id) => <Input id={id} name="name" maxLength={80} required />}
        </Field>
        <Button type="submit">{texts.savePreset}</Button>
      </form>
    </section>
  );
}
