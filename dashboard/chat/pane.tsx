import { useState } from 'react';
import { Field } from '../ui/field.tsx';
import { cutAt, userTurn } from './conversation.ts';
import type { Settings } from './settings.tsx';
import { TurnView } from './turn.tsx';
import { useConversation } from './use-conversation.ts';

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
  const conversation = useConversation(model, settings);
  const { turns, busy } = conversation;
  const [draft, setDraft] = useState('');
  const [images, setImages] = useState<string[]>([]);

  const sendDraft = () => {
    if (draft.trim() === '' || busy || model === '') return;
    setDraft('');
    setImages([]);
    conversation.ask([...turns, userTurn(draft, images)]);
  };
  const edit = (index: number) => {
    setDraft(turns[index]?.text ?? '');
    setImages(turns[index]?.images ?? []);
    conversation.cut(index);
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
    <section className="pane" aria-label={name}>
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
      <ol className="turns" aria-live="polite">
        {turns.map((turn, index) => (
          <TurnView
            // biome-ignore lint/suspicious/noArrayIndexKey: turns are only added behind
            key={index}
            turn={turn}
            edit={busy ? undefined : () => edit(index)}
            again={busy || index < turns.length - 1 ? undefined : () => conversation.ask(cutAt(turns, index))}
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
          <p className="row">
            {images.map((url) => (
              <img key={url} src={url} alt="Attached" className="thumb" />
            ))}
            <button type="button" className="small" onClick={() => setImages([])}>
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
              onChange={(event) => setDraft(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) {
                  event.preventDefault();
                  sendDraft();
                }
              }}
            />
          )}
        </Field>
        <div className="row">
          {busy ? (
            <button type="button" onClick={conversation.stop}>
              Stop
            </button>
          ) : (
            <button type="submit" disabled={model === ''}>
              Send
            </button>
          )}
          <label className="button">
            Picture
            <input
              type="file"
              className="hidden"
              accept="image/*"
              multiple
              onChange={(event) => {
                attach(event.currentTarget.files);
                event.currentTarget.value = '';
              }}
            />
          </label>
          <button type="button" onClick={conversation.clear} disabled={turns.length === 0}>
            New conversation
          </button>
        </div>
      </form>
    </section>
  );
}
