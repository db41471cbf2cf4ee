import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useLocation } from 'wouter';
import { readShare } from '../../api/shared-conversations.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Empty, Failure, Loading } from '../../ui/feedback.tsx';
import { useAction } from '../../ui/use-action.ts';
import type { Conversation } from '../conversation.ts';
import type { ConversationStore } from '../conversation-store.ts';
import { open } from '../keep/box-cipher.ts';
import { newId } from '../new-conversation.ts';
import { ThreadView } from '../thread-view.tsx';
import { NO_ACTIONS } from '../use-turn-actions.ts';
import { linkKey } from './link-key.ts';
import { conversationOf } from './shared-conversation.ts';

const texts = t.chat.share;

interface SharedViewProps {
  owner: string;
  id: string;
  /** The key, in the fragment of the address. */
  link: string;
  store: ConversationStore;
}

/** Shows a conversation that another person shares. Its reader may continue a copy of it. */
export function SharedView({ owner, id, link, store }: SharedViewProps) {
  const shared = useQuery({
    queryKey: ['shared', owner, id, link],
    // The gateway answers before the key is used: a deleted link is gone, and not wrong.
    queryFn: async () => await opened(await readShare(owner, id), id, link),
    retry: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const [, navigate] = useLocation();
  const { act, error, busy } = useAction<Conversation>(({ id: own }) => navigate(`/chat/${own}`));
  if (shared.error) return <Page>{<Failure error={shared.error} />}</Page>;
  if (shared.data === undefined) return <Page>{<Loading />}</Page>;
  const conversation = shared.data;
  const copy = async () => {
    const now = Date.now();
    // The reader may have continued an earlier copy, so each copy is another conversation.
    const own = { ...conversation, id: newId(), createdAt: now, updatedAt: now };
    await store.save(own);
    return own;
  };
  return (
    <div className="flex h-full min-h-0 flex-col">
      <div className="flex flex-wrap items-center gap-3 border-line border-b px-4 py-2">
        <h1 className="min-w-0 flex-1 truncate font-medium">{conversation.title || t.chat.list.untitled}</h1>
        <span className="text-muted text-sm">{texts.shared}</span>
        <Button size="small" disabled={busy} onClick={() => act(copy())}>
          {texts.copy}
        </Button>
      </div>
      {error !== undefined && <Failure error={error} />}
      <div className="flex min-h-0 flex-1 flex-col divide-line max-md:divide-y md:flex-row md:divide-x">
        {conversation.threads.map((thread, n) => (
          <ThreadView
            // biome-ignore lint/suspicious/noArrayIndexKey: the first and the second thread
            key={n}
            label={thread.model}
            thread={thread}
            busy
            models={NONE}
            loads={NONE}
            actions={NO_ACTIONS}
          />
        ))}
      </div>
    </div>
  );
}

const NONE = new Map<string, never>();

function Page({ children }: { children: ReactNode }) {
  return (
    <div className="p-8">
      <Empty>{children}</Empty>
    </div>
  );
}

/** @throws Error with a message for the user */
async function opened(box: Uint8Array<ArrayBuffer>, id: string, link: string): Promise<Conversation> {
  if (!globalThis.isSecureContext) throw new Error(texts.needsTls);
  try {
    return conversationOf(await open(await linkKey(link), id, box));
  } catch (cause) {
    throw new Error(texts.wrong, { cause });
  }
}
