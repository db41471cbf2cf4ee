/** Exports a conversation as a file. */
import { t } from '../texts/index.ts';
import { type Conversation, shownTurns } from './conversation.ts';

/** The shown branches as Markdown, for reading. */
export function asMarkdown(conversation: Conversation): string {
  const { title, threads } = conversation;
  const parts = threads.map((thread) => {
    const turns = shownTurns(thread).map(({ role, text, attachments = [], error }) => {
      const files = attachments.map(({ name }) => `*${name}*\n\n`).join('');
      return `## ${role === 'user' ? t.chat.you : thread.model}\n\n${files}${text}${error === undefined ? '' : `\n\n> ${error}`}\n`;
    });
    return threads.length === 1 ? turns.join('\n') : `# ${thread.model}\n\n${turns.join('\n')}`;
  });
  return `# ${title}\n\n${parts.join('\n')}`;
}

/** All branches as JSON, in the form in which this page stores them. */
export function asJson(conversation: Conversation): string {
  return JSON.stringify({ format: 'otela-conversation', version: 1, ...conversation }, null, 2);
}

/** Makes a title a valid file name. */
export function exportFileName(title: string): string {
  return (
    title
      .replace(/[^\p{L}\p{N}]+/gu, '-')
      .replace(/^-|-$/g, '')
      .slice(0, 60) || 'conversation'
  );
}
