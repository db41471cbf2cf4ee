import { useState } from 'react';
import { useSearchParams } from 'wouter';
import { ChatPane } from '../chat/pane.tsx';
import { NO_SETTINGS, type Settings, SettingsForm } from '../chat/settings.tsx';
import { catalogue } from '../parts/catalogue.ts';
import { useLive } from '../parts/session.tsx';
import { Empty, Loading } from '../ui/feedback.tsx';

export function Component() {
  const live = useLive();
  const [query] = useSearchParams();
  const model = query.get('model') ?? '';
  const models = catalogue(live.nodes.values()).flatMap(({ id, serving }) => (serving > 0 ? [id] : []));
  const [two, setTwo] = useState(false);
  const [settings, setSettings] = useState<Settings>(NO_SETTINGS);
  if (models.length === 0 && live.connection !== 'live') return <Loading />;
  return (
    <>
      <h1>Chat</h1>
      {models.length === 0 && <Empty>No model is served at this moment.</Empty>}
      <div className="row">
        <button type="button" aria-pressed={two} onClick={() => setTwo(!two)}>
          Two models side by side
        </button>
      </div>
      <SettingsForm settings={settings} change={setSettings} />
      <div className={two ? 'panes two' : 'panes'}>
        <ChatPane name="First model" models={models} initial={model} settings={settings} />
        {two && (
          <ChatPane
            name="Second model"
            models={models}
            initial={models.find((one) => one !== model) ?? ''}
            settings={settings}
          />
        )}
      </div>
    </>
  );
}
