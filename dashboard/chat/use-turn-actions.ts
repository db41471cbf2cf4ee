import { type RefObject, useEffect, useMemo, useState } from 'react';
import { useLocation } from 'wouter';
import { useStable } from '../ui/use-stable-callback.ts';
import type { ComposerHandle, Draft } from './composer.tsx';
import { shownTurns } from './conversation.ts';
import type { OpenConversation } from './open-conversation.ts';
import type { TurnActions } from './turn-view.tsx';
import { useConversation } from './use-conversations.ts';

export const NO_ACTIONS: TurnActions = { show: () => undefined, edit: () => undefined, again: () => undefined };

/** Sends, edits, repeats and stops turns. `composer` shows the text of the turn that is edited. */
export function useTurnActions(model: OpenConversation, composer: RefObject<ComposerHandle | null>) {
  const { id: conversation, threads } = useConversation(model);
  const [, navigate] = useLocation();
  const [editing, setEditing] = useState<string>();
  const startEdit = useStable((id: string) => {
    const turn = threads.map(({ turns }) => turns[id]).find((one) => one !== undefined);
    if (turn === undefined) return;
    setEditing(id);
    composer.current?.set({ text: turn.text, attachments: turn.attachments ?? [] });
  });
  const endEdit = useStable(() => {
    setEditing(undefined);
    composer.current?.set({ text: '', attachments: [] });
  });
  const send = useStable(({ text, attachments }: Draft) => {
    // Puts the conversation's id into the address, so that a reload finds the conversation.
    if (model.isEmpty) navigate(`/chat/${conversation}`, { replace: true });
    if (editing === undefined) model.ask(text, attachments);
    else model.edit(editing, text, attachments);
    setEditing(undefined);
  });
  const stop = useStable(() => model.stop());
  const recall = useStable(() => {
    const [first] = threads;
    const last = first && shownTurns(first).findLast(({ role }) => role === 'user');
    if (last !== undefined) startEdit(last.id);
  });
  const actions = useMemo(
    () =>
      [0, 1].map(
        (n): TurnActions => ({
          show: (turn, at) => model.show(n, turn, at),
          edit: startEdit,
          again: (id) => model.regenerate(n, id),
        }),
      ),
    [model, startEdit],
  );
  useStopByEscape(model, editing !== undefined);
  return { actions, send, stop, recall, cancelEdit: editing === undefined ? undefined : endEdit };
}

/** Elements that handle Escape themselves. */
const POPUPS = '[role=dialog], [role=alertdialog], [role=menu], [role=listbox]';

/** Escape stops an answer, regardless of the focus. */
function useStopByEscape(model: OpenConversation, editing: boolean): void {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      const inPopup = event.target instanceof Element && event.target.closest(POPUPS) !== null;
      if (event.key === 'Escape' && !inPopup && !editing && model.isBusy) model.stop();
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, [model, editing]);
}
