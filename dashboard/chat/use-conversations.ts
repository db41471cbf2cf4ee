import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react';
import { ConversationModel, newConversation, settled } from './conversation-model.ts';
import { isDefault, settingsOfLink } from './settings.ts';
import type { ConversationStore, Summary } from './store.ts';

/** The list, kept as tabs change it; undefined until it is read. `failed`: this browser keeps nothing for the page, as some do in private windows. */
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

export interface OpenConversation {
  model: ConversationModel | undefined;
  /** It was asked for, and is not in this browser. */
  missing: boolean;
  /** What a link set is not what the person chose, and is told. */
  fromLink: boolean;
}

/**
 * The conversation that the page's address names; without one a new one, as its query says. Leaving it ends what is being answered: nobody
 * would read it.
 */
export function useOpenConversation(store: ConversationStore, id: string | undefined, query: string): OpenConversation {
  const [open, setOpen] = useState<OpenConversation>({ model: undefined, missing: false, fromLink: false });
  const current = useRef<ConversationModel>(undefined);
  useEffect(() => {
    // Its first question gave it an address.
    if (current.current !== undefined && current.current.conversation.id === id) return;
    current.current?.close();
    current.current = undefined;
    let isGone = false;
    const show = (model: ConversationModel | undefined, fromLink: boolean) => {
      current.current = model;
      setOpen({ model, missing: model === undefined, fromLink });
    };
    if (id === undefined) {
      const { models, settings } = settingsOfLink(new URLSearchParams(query));
      show(new ConversationModel(store, newConversation(models, settings)), !isDefault(settings));
      return;
    }
    store.get(id).then(
      (found) => isGone || show(found && new ConversationModel(store, settled(found), true), false),
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

/** Draws again with each change of a conversation. */
export function useConversation(model: ConversationModel) {
  return useSyncExternalStore(model.subscribe, () => model.conversation);
}
