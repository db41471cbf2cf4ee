import { useEffect, useMemo, useRef, useState } from 'react';
import type { ModelLoad } from '../api/schemas.ts';
import { type CatalogueModel, catalogueOf, withStartable } from '../parts/model-catalog.ts';
import { useLive } from '../parts/session.tsx';
import { useAllModels } from '../parts/startable-models.ts';
import { t } from '../texts/index.ts';
import { Button } from '../ui/button.tsx';
import { DropZone } from '../ui/drop-zone.tsx';
import { Failure, messageOf } from '../ui/feedback.tsx';
import { useStable } from '../ui/use-stable-callback.ts';
import { isDefault, SEALED } from './chat-settings.ts';
import { Composer, type ComposerHandle } from './composer.tsx';
import { ConversationHead } from './conversation-head.tsx';
import type { ConversationStore } from './conversation-store.ts';
import { ModelPicker } from './model-picker.tsx';
import type { OpenConversation } from './open-conversation.ts';
import { SettingsDialog } from './settings-dialog.tsx';
import { ThreadView } from './thread-view.tsx';
import { useConversation } from './use-conversations.ts';
import { NO_ACTIONS, useTurnActions } from './use-turn-actions.ts';
import { VoiceContext } from './voice/voice-context.ts';

const texts = t.chat;

interface ConversationViewProps {
  model: OpenConversation;
  store: ConversationStore;
  begin: () => void;
  /** Called after the list changed. */
  onSaved: () => void;
  /** The model of the newest conversation; empty: there is no conversation; undefined: not read yet. */
  lastModel: string | undefined;
  fromLink: boolean;
  unavailable: boolean;
}

export function ConversationView({
  model,
  store,
  begin,
  onSaved,
  lastModel,
  fromLink,
  unavailable,
}: ConversationViewProps) {
  const conversation = useConversation(model);
  const { threads, settings, updatedAt } = conversation;
  const live = useLive();
  const { startable, voice } = useAllModels(false);
  const models = useMemo(() => withStartable(catalogueOf(live.nodes.values()), startable), [live.nodes, startable]);
  const byId = useMemo(() => new Map(models.map((one) => [one.id, one])), [models]);
  const composer = useRef<ComposerHandle>(null);
  const [open, setOpen] = useState(false);
  const { isBusy: busy } = model;
  // biome-ignore lint/correctness/useExhaustiveDependencies: called after each save
  useEffect(onSaved, [updatedAt]);
  const [first] = threads;
  const proposed = first?.model === '' ? proposedModel(models, live.loads, lastModel) : undefined;
  useEffect(() => {
    if (proposed !== undefined) model.setModel(0, proposed);
  }, [model, proposed]);

  const turns = useTurnActions(model, composer);
  const openSettings = useStable(() => setOpen(true));
  const two = threads.length > 1;
  const pickerFor = (n: number) => (
    <ModelPicker
      label={n === 0 ? texts.model : texts.secondModel}
      value={threads[n]?.model ?? ''}
      models={models}
      loads={live.loads}
      choose={(next) => model.setModel(n, next)}
    />
  );
  const heard = useMemo(
    () => ({ ...(settings.sealed === SEALED ? {} : voice), trusted: settings.trusted.trim() }),
    [settings.sealed, settings.trusted, voice],
  );
  return (
    <VoiceContext value={heard}>
      <DropZone
        label={texts.files.drop}
        add={(files) => composer.current?.add(files)}
        className="flex h-full min-h-0 flex-col"
      >
        <h1 className="sr-only">{conversation.title || t.pages.chat}</h1>
        <ConversationHead
          model={model}
          title={conversation.title}
          asked={first?.model ?? ''}
          two={two}
          busy={busy}
          isSet={!isDefault(settings)}
          models={models}
          loads={live.loads}
          openSettings={openSettings}
          begin={begin}
        />
        {model.isEmpty ? (
          <div className="flex min-h-0 flex-1 flex-col items-center justify-center gap-2 p-6 text-center">
            <p className="font-semibold text-2xl tracking-tight">{texts.greeting}</p>
            {models.length === 0 && live.connection === 'live' && <p className="text-muted">{texts.noModel}</p>}
            {two && (
              <div className="flex flex-wrap justify-center gap-4">
                {[0, 1].map((n) => (
                  <span key={n}>{pickerFor(n)}</span>
                ))}
              </div>
            )}
          </div>
        ) : (
          <div className="flex min-h-0 flex-1 flex-col divide-line max-md:divide-y md:flex-row md:divide-x">
            {threads.map((thread, n) => (
              <ThreadView
                // biome-ignore lint/suspicious/noArrayIndexKey: the first and the second thread
                key={n}
                label={n === 0 ? texts.model : texts.secondModel}
                thread={thread}
                busy={busy}
                models={byId}
                loads={live.loads}
                actions={turns.actions[n] ?? NO_ACTIONS}
                head={
                  two && (
                    <div className="flex h-11 shrink-0 items-center justify-between gap-2 border-line border-b px-2">
                      {pickerFor(n)}
                      <Button size="small" kind="ghost" onClick={() => model.keep(n)}>
                        {texts.keepThis}
                      </Button>
                    </div>
                  )
                }
              />
            ))}
          </div>
        )}
        <div className="mx-auto w-full max-w-3xl shrink-0 px-3 pb-2">
          <Notices model={model} fromLink={fromLink} unavailable={unavailable} openSettings={openSettings} />
          <Composer
            ref={composer}
            model={threads.map(({ model: name }) => name).join(', ')}
            busy={busy}
            cancelEdit={turns.cancelEdit}
            send={turns.send}
            stop={turns.stop}
            recall={turns.recall}
          />
          {settings.sealed === SEALED && <p className="pt-1.5 text-center text-muted text-xs">{texts.sealed.label}</p>}
          <p className="pt-1.5 text-center text-muted text-xs max-sm:hidden">{texts.hint}</p>
        </div>
        {open && (
          <SettingsDialog
            settings={settings}
            models={threads.map(({ model: name }) => name)}
            store={store}
            change={(next) => model.setSettings(next)}
            apply={(preset) => {
              model.setSettings(preset.settings);
              if (preset.model !== '') model.setModel(0, preset.model);
            }}
            close={() => setOpen(false)}
          />
        )}
      </DropZone>
    </VoiceContext>
  );
}

interface NoticesProps {
  model: OpenConversation;
  fromLink: boolean;
  unavailable: boolean;
  openSettings: () => void;
}

function Notices({ model, fromLink, unavailable, openSettings }: NoticesProps) {
  return (
    <>
      {fromLink && model.isEmpty && (
        <p
          role="status"
          className="mb-2 flex flex-wrap items-center gap-3 rounded-md bg-wait-soft px-4 py-2 text-sm text-wait"
        >
          <span className="flex-1">{texts.settings.fromLink}</span>
          <Button size="small" onClick={openSettings}>
            {texts.settings.review}
          </Button>
        </p>
      )}
      {unavailable && (
        <p className="mb-2 rounded-md bg-wait-soft px-4 py-2 text-sm text-wait">{texts.list.unavailable}</p>
      )}
      {model.saveError !== undefined && !unavailable && (
        <Failure error={new Error(texts.notSaved(messageOf(model.saveError)))} />
      )}
    </>
  );
}

/** The model for a new conversation: the one of the previous conversation, otherwise a served model without a queue. */
function proposedModel(
  models: readonly CatalogueModel[],
  loads: ReadonlyMap<string, ModelLoad>,
  lastModel: string | undefined,
): string | undefined {
  if (lastModel === undefined) return undefined;
  const served = models.filter(({ serving }) => serving > 0).map(({ id }) => id);
  if (served.includes(lastModel)) return lastModel;
  return served.find((id) => (loads.get(id)?.waiting ?? 0) === 0) ?? served[0];
}
