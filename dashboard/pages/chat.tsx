import { useEffect, useMemo, useRef } from 'react';
import { useLocation, useRoute, useSearch } from 'wouter';
import { ConversationList } from '../chat/conversation-list.tsx';
import { ConversationStore } from '../chat/conversation-store.ts';
import { ConversationView } from '../chat/conversation-view.tsx';
import { KeepStatus } from '../chat/keep/keep-status.tsx';
import { SharedView } from '../chat/share/shared-view.tsx';
import { useOpenConversation, useSummaries } from '../chat/use-conversations.ts';
import { useMe } from '../parts/session.tsx';
import { InSidebar } from '../parts/sidebar-slot.tsx';
import { t } from '../texts/index.ts';
import { Empty, Loading } from '../ui/feedback.tsx';
import { useStable } from '../ui/use-stable-callback.ts';

export default function ChatPage() {
  const me = useMe();
  const store = useMemo(() => new ConversationStore(me.user_id ?? me.id), [me.user_id, me.id]);
  const [, params] = useRoute('/chat/:id');
  const [, shared] = useRoute('/chat/shared/:owner/:id/:link');
  const query = useSearch();
  const [, navigate] = useLocation();
  const { summaries, failed, load } = useSummaries(store);
  const { model, missing, fromLink } = useOpenConversation(store, params?.id, query);
  const search = useRef<HTMLInputElement>(null);
  const begin = useStable(() => navigate('/chat'));
  useShortcuts({ begin, search: () => search.current?.focus() });
  const remove = async (id: string) => {
    if (model?.conversation.id === id) {
      model.forget();
      navigate('/chat');
    }
    await store.delete(id);
    load();
  };
  const rename = async (id: string, title: string) => {
    if (model?.conversation.id === id) model.setTitle(title);
    await store.rename(id, title);
    load();
  };
  return (
    <>
      <InSidebar>
        <ConversationList
          store={store}
          conversations={summaries ?? []}
          open={params?.id}
          begin={begin}
          rename={rename}
          remove={remove}
          search={search}
          shares={me.keeps_conversations === true && globalThis.isSecureContext}
        />
        <KeepStatus person={me.keeps_conversations ? (me.user_id ?? undefined) : undefined} />
      </InSidebar>
      {shared !== null ? (
        <SharedView key={shared.id} owner={shared.owner} id={shared.id} link={shared.link} store={store} />
      ) : model !== undefined ? (
        <ConversationView
          key={model.conversation.id}
          model={model}
          store={store}
          begin={begin}
          onSaved={load}
          lastModel={failed ? '' : summaries && (summaries[0]?.model ?? '')}
          fromLink={fromLink}
          unavailable={failed}
        />
      ) : missing ? (
        <div className="p-8">
          <Empty>{t.chat.list.gone}</Empty>
        </div>
      ) : (
        <div className="p-8">
          <Loading />
        </div>
      )}
    </>
  );
}

/** Ctrl+Shift+O begins a new conversation and Ctrl+K searches, as in other programs; on a Mac with the command key. */
function useShortcuts({ begin, search }: { begin: () => void; search: () => void }): void {
  const latest = useRef({ begin, search });
  latest.current = { begin, search };
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey)) return;
      const key = event.key.toLowerCase();
      if (key === 'k') latest.current.search();
      else if (key === 'o' && event.shiftKey) latest.current.begin();
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, []);
}
