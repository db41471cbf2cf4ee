import clsx from 'clsx';
import { type ClipboardEvent, type KeyboardEvent, memo, type Ref, useImperativeHandle, useRef, useState } from 'react';
import { t } from '../texts/index.ts';
import { IconButton } from '../ui/button.tsx';
import { Failure } from '../ui/feedback.tsx';
import { ArrowUp, LoaderCircle, Paperclip, Pencil, Square } from '../ui/icons.ts';
import { AttachmentList } from './attachment-list.tsx';
import { ACCEPTED, ATTACHMENTS_MAX, attachmentOf } from './attachments.ts';
import type { Attachment } from './conversation.ts';
import { DictateButton } from './voice/dictate-button.tsx';

const texts = t.chat;

export interface Draft {
  text: string;
  attachments: readonly Attachment[];
}

/** What other components may do with the composer. */
export interface ComposerHandle {
  focus: () => void;
  add: (files: Iterable<File>) => void;
  /** Replaces the typed draft. */
  set: (draft: Draft) => void;
}

interface ComposerProps {
  model: string;
  busy: boolean;
  /** Ends the editing of a sent message; undefined: the message is new. */
  cancelEdit: (() => void) | undefined;
  send: (draft: Draft) => void;
  stop: () => void;
  /** Called for arrow up in an empty composer. */
  recall: () => void;
  ref: Ref<ComposerHandle>;
}

/** The input for messages. It stays at the lower edge, and is not rendered again while an answer streams. */
export const Composer = memo(({ model, busy, cancelEdit, send, stop, recall, ref }: ComposerProps) => {
  const [text, setText] = useState('');
  const area = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const { attachments, reading, error, setError, add, remove, setAttachments } = useAttachments();
  useImperativeHandle(ref, () => ({
    focus: () => area.current?.focus(),
    add,
    set: (draft) => {
      setText(draft.text);
      setAttachments([...draft.attachments]);
      area.current?.focus();
    },
  }));
  const canSend = !busy && model !== '' && reading.length === 0 && (text.trim() !== '' || attachments.length > 0);
  const submit = () => {
    if (!canSend) return;
    send({ text: text.trim(), attachments });
    setText('');
    setAttachments([]);
  };
  const onKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    // While an input method composes a word from several keys, as in Japanese, Enter ends the word.
    if (event.nativeEvent.isComposing) return;
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      submit();
    } else if (event.key === 'ArrowUp' && text === '' && !busy) {
      event.preventDefault();
      recall();
    } else if (event.key === 'Escape' && cancelEdit) cancelEdit();
  };
  const onPaste = (event: ClipboardEvent) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    add(event.clipboardData.files);
  };
  return (
    <form
      className={clsx(
        'flex flex-col gap-2 rounded-xl border bg-surface p-2 shadow-raised focus-within:border-accent',
        cancelEdit ? 'border-accent' : 'border-line-strong',
      )}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {cancelEdit && (
        <p className="flex items-center gap-2 px-2 text-muted text-sm">
          <Pencil className="size-3.5 shrink-0" aria-hidden />
          <span className="flex-1">{texts.editing}</span>
          <button type="button" className="hover:text-ink" onClick={cancelEdit}>
            {t.common.cancel}
          </button>
        </p>
      )}
      {error !== undefined && <Failure error={error} />}
      <AttachmentList attachments={attachments} remove={remove} />
      {reading.map((name) => (
        <p key={name} role="status" className="flex items-center gap-2 px-2 text-muted text-sm">
          <LoaderCircle className="size-4 animate-spin" aria-hidden />
          {texts.reading(name)}
        </p>
      ))}
      <textarea
        ref={area}
        aria-label={texts.message}
        placeholder={texts.placeholder(model)}
        rows={1}
        value={text}
        // biome-ignore lint/a11y/noAutofocus: the page is opened to write here
        autoFocus
        onChange={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
        className="field-sizing-content max-h-[40dvh] min-h-10 w-full resize-none bg-transparent px-2 py-2 outline-none placeholder:text-muted"
      />
      <div className="flex items-center gap-1">
        <input
          ref={chooser}
          type="file"
          multiple
          accept={ACCEPTED}
          className="hidden"
          tabIndex={-1}
          onChange={({ currentTarget }) => {
            add(currentTarget.files ?? []);
            currentTarget.value = '';
          }}
        />
        <IconButton label={texts.attach} onClick={() => chooser.current?.click()}>
          <Paperclip />
        </IconButton>
        <DictateButton
          onText={(words) => {
            setText((before) => (before.trim() === '' ? words : `${before.trimEnd()} ${words}`));
            area.current?.focus();
          }}
          onError={setError}
        />
        <span className="flex-1" />
        {busy ? (
          <IconButton
            label={texts.stop}
            onClick={() => {
              stop();
              area.current?.focus();
            }}
            className="size-9! rounded-full! bg-ink text-canvas! enabled:hover:bg-ink! hover:opacity-85"
          >
            <Square fill="currentColor" />
          </IconButton>
        ) : (
          <IconButton
            type="submit"
            label={texts.send}
            disabled={!canSend}
            className="size-9! rounded-full! bg-accent text-on-accent! enabled:hover:bg-accent-hover!"
          >
            <ArrowUp />
          </IconButton>
        )}
      </div>
    </form>
  );
});

function useAttachments() {
  const [attachments, setAttachments] = useState<Attachment[]>([]);
  const [reading, setReading] = useState<string[]>([]);
  const [error, setError] = useState<unknown>();
  const add = (files: Iterable<File>) => {
    setError(undefined);
    const some = [...files];
    if (attachments.length + reading.length + some.length > ATTACHMENTS_MAX) {
      setError(new Error(texts.files.tooMany(ATTACHMENTS_MAX)));
      return;
    }
    for (const file of some) {
      setReading((names) => [...names, file.name]);
      attachmentOf(file)
        .then((one) => setAttachments((before) => [...before, one]))
        .catch(setError)
        .finally(() => setReading((names) => names.toSpliced(names.indexOf(file.name), 1)));
    }
  };
  const remove = (at: number) => setAttachments((before) => before.toSpliced(at, 1));
  return { attachments, reading, error, setError, add, remove, setAttachments };
}
