/**
 * A conversation and its changes. The functions are pure, so that branches, edits and stops can be tested without a
 * browser.
 */
import type { AnswerFacts, ChatMessage, Part, ToolCallDelta, Waiting } from '../api/chat.ts';
import { type ChatSettings, chatSampling } from './chat-settings.ts';

export type Attachment =
  | { kind: 'image'; name: string /** A data URL. */; url: string }
  | {
      kind: 'text';
      name: string;
      text: string /** For a PDF. */;
      pages?: number /** True if `text` is only the beginning. */;
      cut?: true;
    };

export interface ToolCall {
  name: string;
  /** JSON, possibly incomplete while it streams. */
  arguments: string;
}

export interface Turn {
  id: string;
  /** The previous turn; null: this is the first one. */
  parent: string | null;
  role: 'user' | 'assistant';
  text: string;
  /** Files and pictures that the user attached. An answer has none. */
  attachments?: Attachment[];
  /** The model's reasoning, if the model sends it. */
  reasoning?: string;
  reasoningMs?: number;
  toolCalls?: ToolCall[];
  /** The requested model. */
  model?: string;
  facts?: AnswerFacts;
  /**
   * Why the answer has not begun. A saved conversation has this if its page was closed while the answer was awaited.
   */
  waiting?: Waiting;
  state: 'done' | 'streaming' | 'stopped' | 'failed';
  error?: string;
  /** When the turn was created, in milliseconds since 1970. */
  at: number;
}

/** One model's side of a conversation: a tree of turns. The page shows one branch. */
export interface Thread {
  model: string;
  turns: Readonly<Record<string, Turn>>;
  /** Ids of the shown turns, each by the id of the turn before it ('' for the first one). */
  chosen: Readonly<Record<string, string>>;
}

export interface Conversation {
  id: string;
  title: string;
  /** The user set the title, so a first question does not change it. */
  titled?: true;
  createdAt: number;
  updatedAt: number;
  settings: ChatSettings;
  /** One thread, or two while models are compared. */
  threads: readonly Thread[];
}

export const emptyThread = (model: string): Thread => ({ model, turns: {}, chosen: {} });

/** Longer titles would not fit next to the navigation. */
const TITLE_MAX_CHARS = 80;

export function titleOf(text: string): string {
  const line = text.trim().split(/\s*\n\s*/, 1)[0] ?? '';
  return line.length > TITLE_MAX_CHARS ? `${line.slice(0, TITLE_MAX_CHARS - 1).trimEnd()}…` : line;
}

/** A shown turn, and its alternatives. */
interface ShownTurn {
  turn: Turn;
  /** Index in `branches`, from 0. */
  at: number;
  /** This turn and all other turns that follow the same turn, oldest first. */
  branches: readonly Turn[];
}

/** The shown branch, from the first turn on. */
export function shownBranch({ turns, chosen }: Thread): ShownTurn[] {
  const behind = new Map<string | null, Turn[]>();
  for (const turn of Object.values(turns)) {
    const list = behind.get(turn.parent);
    if (list === undefined) behind.set(turn.parent, [turn]);
    else list.push(turn);
  }
  const shown: ShownTurn[] = [];
  for (let parent: string | null = null; ; ) {
    const branches: Turn[] = (behind.get(parent) ?? []).sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
    const found: number = branches.findIndex(({ id }) => id === chosen[parent ?? '']);
    const at: number = found === -1 ? branches.length - 1 : found;
    const turn: Turn | undefined = branches[at];
    if (turn === undefined) return shown;
    shown.push({ turn, at, branches });
    parent = turn.id;
  }
}

export const shownTurns = (thread: Thread): Turn[] => shownBranch(thread).map(({ turn }) => turn);

/** Adds or replaces a turn, and shows it. */
export function withTurn(thread: Thread, turn: Turn): Thread {
  return {
    ...thread,
    turns: { ...thread.turns, [turn.id]: turn },
    chosen: { ...thread.chosen, [turn.parent ?? '']: turn.id },
  };
}

/** Changes a turn without showing it: the user may view another branch while it grows. */
export function changed(thread: Thread, id: string, change: (turn: Turn) => Turn): Thread {
  const turn = thread.turns[id];
  return turn === undefined ? thread : { ...thread, turns: { ...thread.turns, [id]: change(turn) } };
}

export function chooseTurn(thread: Thread, turn: Turn): Thread {
  return { ...thread, chosen: { ...thread.chosen, [turn.parent ?? '']: turn.id } };
}

/** All turns up to and including this one. */
export function pathTo(thread: Thread, id: string | null): Turn[] {
  const path: Turn[] = [];
  for (let turn = id === null ? undefined : thread.turns[id]; turn !== undefined; ) {
    path.unshift(turn);
    turn = turn.parent === null ? undefined : thread.turns[turn.parent];
  }
  return path;
}

export function withToolCall(calls: readonly ToolCall[], delta: ToolCallDelta): ToolCall[] {
  const next = [...calls];
  // A hostile index must not allocate a list of a billion entries.
  const at = Math.min(Math.max(0, Math.floor(delta.index) || 0), next.length);
  const before = next[at] ?? { name: '', arguments: '' };
  next[at] = { name: before.name + delta.name, arguments: before.arguments + delta.arguments };
  return next;
}

/** The messages for the engine. Answers that failed before their first text are left out. */
export function requestOf(model: string, turns: readonly Turn[], settings: ChatSettings) {
  const said = turns.filter(({ role, text }) => role === 'user' || text !== '');
  const messages = said.map((turn): ChatMessage => ({ role: turn.role, content: contentOf(turn) }));
  const system: ChatMessage[] =
    settings.system.trim() === '' ? [] : [{ role: 'system', content: settings.system.trim() }];
  return { model, messages: [...system, ...messages], ...chatSampling(settings) };
}

function contentOf({ text, attachments = [] }: Turn): string | Part[] {
  const files = attachments.flatMap((one) => (one.kind === 'text' ? [one] : []));
  const images = attachments.flatMap((one) => (one.kind === 'image' ? [one] : []));
  const documents = files.map(
    ({ name, text: inside }) => `<file name=${JSON.stringify(name)}>\n${inside}\n</file>\n\n`,
  );
  const whole = `${documents.join('')}${text}`;
  if (images.length === 0) return whole;
  return [{ type: 'text', text: whole }, ...images.map(({ url }): Part => ({ type: 'image_url', image_url: { url } }))];
}
