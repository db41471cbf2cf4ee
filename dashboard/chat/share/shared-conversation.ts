/** Conversations as they are shared, and back. */
import { NO_CHAT_SETTINGS } from '../chat-settings.ts';
import { type Conversation, emptyThread, shownTurns, type Thread, withTurn } from '../conversation.ts';
import { newConversation } from '../new-conversation.ts';
import { parseShared, type SharedConversation, TITLE_MAX_CHARS } from './shared-form.ts';

export function sharedText({ title, threads }: Conversation): string {
  const shown = threads.map((thread) => ({
    model: thread.model,
    turns: shownTurns(thread).map(({ role, text, reasoning, attachments }) => ({
      role,
      text,
      ...(reasoning !== undefined && { reasoning }),
      ...(attachments !== undefined && {
        attachments: attachments.map(({ name, ...one }) => shownAttachment(name, one)),
      }),
    })),
  }));
  const cut = title.slice(0, TITLE_MAX_CHARS);
  const form: SharedConversation = { format: 'otela-shared', version: 1, title: cut, threads: shown };
  return JSON.stringify(form);
}

type Shown = { kind: 'image'; url: string } | { kind: 'text'; text: string };

const shownAttachment = (name: string, one: Shown) =>
  one.kind === 'image' ? { kind: one.kind, name, url: one.url } : { kind: one.kind, name, text: one.text };

/** A new conversation with the shared turns. @throws if the text has another form */
export function conversationOf(text: string): Conversation {
  const shared = parseShared(text);
  const own = newConversation([], NO_CHAT_SETTINGS);
  const threads = shared.threads.map(({ model, turns }, n): Thread => {
    let thread = emptyThread(model);
    for (const [at, turn] of turns.entries()) {
      const [id, parent] = [`${n}-${at}`, at === 0 ? null : `${n}-${at - 1}`];
      const { role, reasoning, attachments } = turn;
      thread = withTurn(thread, {
        ...{ id, parent, role, text: turn.text, state: 'done', at: own.createdAt },
        ...(role === 'assistant' && { model }),
        ...(reasoning !== undefined && { reasoning }),
        ...(attachments !== undefined && { attachments }),
      });
    }
    return thread;
  });
  return { ...own, title: shared.title, titled: true, threads };
}
