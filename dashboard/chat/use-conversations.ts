import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react';
import { isDefault, settingsOfLink } from './chat-settings.ts';
import type { ConversationStore, Summary } from './conversation-store.ts';
import { newConversation } from './new-conversation.ts';
import { OpenConversation, settled } from './open-conversation.ts';

/**
 * The list, updated as tabs change it; undefined until it is read. `failed`: this browser stores nothing for the page,
 * as some do in private windows.
 */
export function useSummaries(store: ConversationStore) {
  const [summaries, setSummaries] = useState<readonly Summary[]>();
  const [failed, setFailed] = useState(false);
  const load = useMemo(() => () => void store.list().then(setSummaries, () => setFailed(true)), [store]);
  useEffect(() => {
    load();
    return store.watch(load);
  }, [store, load]);
  return { summaries, failed, load };
}

interface OpenedConversation {
  model: OpenConversation | undefined;
  /** True if this browser does not have the requested conversation. */
  missing: boolean;
  /** True if a link chose the settings, and not the user. The page then says so. */
  fromLink: boolean;
}

/**
 * The conversation that the page's address names; without an id, a new one with the settings of the query. Leaving it
 * aborts its running answers, because no user would read them.
 */
export function useOpenConversation(
  store: ConversationStore,
  id: string | undefined,
  query: string,
): OpenedConversation {
  const [open, setOpen] = useState<OpenedConversation>({ model: undefined, missing: false, fromLink: false });
  const current = useRef<OpenConversation>(undefined);
  useEffect(() => {
    // The open conversation got this id when its first question was sent.
    if (current.current !== undefined && current.current.conversation.id === id) return;
    current.current?.close();
    current.current = undefined;
    let isGone = false;
    const show = (model: OpenConversation | undefined, fromLink: boolean) => {
      current.current = model;
      setOpen({ model, missing: model === undefined, fromLink });
    };
    if (id === undefined) {
      const { models, settings } = settingsOfLink(new URLSearchParams(query));
      show(new OpenConversation(store, newConversation(models, settings)), !isDefault(settings));
      return;
    }
    store.get(id).then(
      (found) => isGone || show(found && new OpenConversation(store, settled(found), true), false),
      () => isGone || show(undefined, false),
    );
    return () => {
      isGone = true;
    };
  }, [store, id, query]);
  useEffect(
    () =>
      store.watch((changed) => {
        const { current: model } = current;
        if (changed === '' || changed === model?.conversation.id) model?.reload();
      }),
    [store],
  );
  useEffect(
    () => () => {
      current.current?.close();
      current.current = undefined;
    },
    [],
  );
  return open;
}

/** Renders again after each change of a conversation. */
export function useConversation(model: OpenConversation) {
  return useSyncExternalStore(model.subscribe, () => model.conversation);
}
