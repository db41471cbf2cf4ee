import type { ChatSettings } from './chat-settings.ts';
import { type Conversation, emptyThread } from './conversation.ts';

/** Does not use `randomUUID`, because browsers have it only on TLS and on localhost. */
export function newId(): string {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newConversation(models: readonly string[], settings: ChatSettings): Conversation {
  const now = Date.now();
  const threads = (models.length === 0 ? [''] : models).map(emptyThread);
  return { id: newId(), title: '', createdAt: now, updatedAt: now, settings, threads };
}
