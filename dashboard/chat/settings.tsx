import { Field } from '../ui/field.tsx';

/** As typed; empty: the engine's own. */
export interface Settings {
  system: string;
  temperature: string;
  topP: string;
  maxTokens: string;
  trusted: string;
}

export const NO_SETTINGS: Settings = { system: '', temperature: '', topP: '', maxTokens: '', trusted: '' };

export function SettingsForm({ settings, change }: { settings: Settings; change: (settings: Settings) => void }) {
  const set = (name: keyof Settings) => (event: { currentTarget: HTMLInputElement | HTMLTextAreaElement }) =>
    change({ ...settings, [name]: event.currentTarget.value });
  return (
    <details className="settings">
      <summary>System prompt, temperature and where it may go</summary>
      <Field label="System prompt">
        {(id) => <textarea id={id} rows={2} value={settings.system} onChange={set('system')} />}
      </Field>
      <div className="row">
        <Field label="Temperature">
          {(id) => (
            <input
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
        <Field label="Top p">
          {(id) => (
            <input id={id} type="number" min="0" max="1" step="0.05" value={settings.topP} onChange={set('topP')} />
          )}
        </Field>
        <Field label="Longest answer (tokens)">
          {(id) => <input id={id} type="number" min="1" value={settings.maxTokens} onChange={set('maxTokens')} />}
        </Field>
        <Field label="Trusted providers" hint="Only these may see it.">
          {(id) => <input id={id} value={settings.trusted} onChange={set('trusted')} placeholder="eth, psi@peer" />}
        </Field>
      </div>
    </details>
  );
}
