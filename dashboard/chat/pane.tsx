import { useEffect, useRef, useState } from 'preact/hooks';
import { chat } from '../api/chat.ts';
import { Field } from '../parts/ui.tsx';
import { cutAt, emptyAnswer, messagesOf, samplingOf, type Turn, userTurn } from './conversation.ts';
import type { Settings } from './settings.tsx';
import { TurnView } from './turn.tsx';

/** Larger pictures are refused here, before the browser stalls on them. */
const IMAGE_MAX_BYTES = 8 * 1024 * 1024;

interface PaneProps {
  name: string;
  models: readonly string[];
  initial: string;
  settings: Settings;
}

/** One model and one conversation, kept in this page alone. */
export function ChatPane({ name, models, initial, settings }: PaneProps) {
  const [chosen, setChosen] = useState(initial);
  const model = chosen || models[0] || '';
  const [turns, setTurns] = useState<Turn[]>([]);
  const [draft, setDraft] = useState('');
  const [images, setImages] = useState<string[]>([]);
  const running = useRef<AbortController>(undefined);
  const [busy, setBusy] = useState(false);
  useEffect(() => () => running.current?.abort(), []);

  const answer = async (asked: Turn[]) => {
    const controller = new AbortController();
    running.current = controller;
    setBusy(true);
    const reply = emptyAnswer();
    const show = () => setTurns([...asked, { ...reply }]);
    show();
    try {
      const request = { model, messages: messagesOf(asked, settings.system), ...samplingOf(settings) };
      const events = {
        onText: (text: string) => {
          reply.text += text;
          show();
        },
        onReasoning: (text: string) => {
          reply.reasoning += text;
          show();
        },
        onTold: (told: Turn['told']) => {
          if (told !== undefined) reply.told = told;
          show();
        },
      };
      await chat(request, settings.trusted, events, controller.signal);
    } catch (error) {
      if (!controller.signal.aborted) reply.error = error instanceof Error ? error.message : String(error);
      show();
    } finally {
      setBusy(false);
    }
  };

  const sendDraft = () => {
    if (draft.trim() === '' || busy || model === '') return;
    const asked = [...turns, userTurn(draft, images)];
    setDraft('');
    setImages([]);
    void answer(asked);
  };
  const edit = (index: number) => {
    setDraft(turns[index]?.text ?? '');
    setImages(turns[index]?.images ?? []);
    setTurns(cutAt(turns, index));
  };
  const attach = (files: FileList | null) => {
    for (const file of files ?? []) {
      if (!file.type.startsWith('image/') || file.size > IMAGE_MAX_BYTES) continue;
      const reader = new FileReader();
      reader.onload = () => setImages((before) => [...before, String(reader.result)]);
      reader.readAsDataURL(file);
    }
  };

  return (
    <section class="pane" aria-label={name}>
      <Field label="Model">
        {(id) => (
          <select id={id} value={model} onChange={(event) => setChosen(event.currentTarget.value)}>
            {(models.includes(model) ? models : [model, ...models]).map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        )}
      </Field>
      <ol class="turns" aria-live="polite">
        {turns.map((turn, index) => (
          <TurnView
            key={index}
            turn={turn}
            edit={busy ? undefined : () => edit(index)}
            again={busy || index < turns.length - 1 ? undefined : () => void answer(cutAt(turns, index))}
          />
        ))}
      </ol>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          sendDraft();
        }}
      >
        {images.length > 0 && (
          <p class="row">
            {images.map((url) => (
              <img key={url} src={url} alt="Attached" class="thumb" />
            ))}
            <button type="button" class="small" onClick={() => setImages([])}>
              Remove
            </button>
          </p>
        )}
        <Field label="Message">
          {(id) => (
            <textarea
              id={id}
              rows={3}
              value={draft}
              onInput={(event) => setDraft(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
                  event.preventDefault();
                  sendDraft();
                }
              }}
            />
          )}
        </Field>
        <div class="row">
          {busy ? (
            <button type="button" onClick={() => running.current?.abort()}>
              Stop
            </button>
          ) : (
            <button type="submit" disabled={model === ''}>
              Send
            </button>
          )}
          <label class="button">
            Picture
            <input
              type="file"
              class="hidden"
              accept="image/*"
              multiple
              onChange={(event) => {
                attach(event.currentTarget.files);
                event.currentTarget.value = '';
              }}
            />
          </label>
          <button
            type="button"
            onClick={() => {
              running.current?.abort();
              setTurns([]);
            }}
            disabled={turns.length === 0}
          >
            New conversation
          </button>
        </div>
      </form>
    </section>
  );
}
