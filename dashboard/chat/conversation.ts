/** A conversation and what happens to it: pure, so that branches, edits and stops can be tested without a browser. */
import type { AnswerFacts, ChatMessage, Part, ToolCallDelta, Waiting } from '../api/chat.ts';
import { type ChatSettings, samplingOf } from './settings.ts';

export type Attachment =
  | { kind: 'image'; name: string /** A data URL. */; url: string }
  | {
      kind: 'text';
      name: string;
      text: string /** Of a PDF. */;
      pages?: number /** Only its beginning is in `text`. */;
      cut?: true;
    };

export interface ToolCall {
  name: string;
  /** JSON, as far as it has come. */
  arguments: string;
}

export interface Turn {
  id: string;
  /** The turn before it; null: the first one. */
  parent: string | null;
  role: 'user' | 'assistant';
  text: string;
  /** Of the user. */
  attachments?: Attachment[];
  /** Of the model, where it tells. */
  reasoning?: string;
  reasoningMs?: number;
  toolCalls?: ToolCall[];
  /** Which model was asked. */
  model?: string;
  facts?: AnswerFacts;
  /** It is on its way, and why nothing came yet. In a conversation that was saved so, the page was closed meanwhile. */
  waiting?: Waiting;
  state: 'done' | 'streaming' | 'stopped' | 'failed';
  error?: string;
  /** Milliseconds since 1970. */
  at: number;
}

/** One model's side of a conversation: a tree of turns. The page shows one branch. */
export interface Thread {
  model: string;
  turns: Readonly<Record<string, Turn>>;
  /** Of a turn (or of none, ''): which of those behind it is shown. */
  chosen: Readonly<Record<string, string>>;
}

export interface Conversation {
  id: string;
  title: string;
  /** It was given by hand: a first question does not change it. */
  titled?: true;
  createdAt: number;
  updatedAt: number;
  settings: ChatSettings;
  /** One; two while models are compared. */
  threads: readonly Thread[];
}

export const emptyThread = (model: string): Thread => ({ model, turns: {}, chosen: {} });

/** Longer ones would not fit beside the navigation. */
const TITLE_MAX_CHARS = 80;

export function titleOf(text: string): string {
  const line = text.trim().split(/\s*\n\s*/, 1)[0] ?? '';
  return line.length > TITLE_MAX_CHARS ? `${line.slice(0, TITLE_MAX_CHARS - 1).trimEnd()}…` : line;
}

/** A turn that is shown, among those that stand in the same place. */
export interface ShownTurn {
  turn: Turn;
  /** From 0 on, in `branches`. */
  at: number;
  /** The oldest first. */
  branches: readonly Turn[];
}

/** The branch that is shown, from the first turn on. */
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

/** Adds a turn, or puts another in its place, and shows it. */
export function withTurn(thread: Thread, turn: Turn): Thread {
  return {
    ...thread,
    turns: { ...thread.turns, [turn.id]: turn },
    chosen: { ...thread.chosen, [turn.parent ?? '']: turn.id },
  };
}

/** Changes a turn without showing it: another branch may be looked at while it grows. */
export function changed(thread: Thread, id: string, change: (turn: Turn) => Turn): Thread {
  const turn = thread.turns[id];
  return turn === undefined ? thread : { ...thread, turns: { ...thread.turns, [id]: change(turn) } };
}

export function choose(thread: Thread, turn: Turn): Thread {
  return { ...thread, chosen: { ...thread.chosen, [turn.parent ?? '']: turn.id } };
}

/** Turns up to this one and with it. */
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
  // A hostile index must not make a list of a billion.
  const at = Math.min(Math.max(0, Math.floor(delta.index) || 0), next.length);
  const before = next[at] ?? { name: '', arguments: '' };
  next[at] = { name: before.name + delta.name, arguments: before.arguments + delta.arguments };
  return next;
}

/** What the engine is sent. Answers that failed before they said anything are left out. */
export function requestOf(model: string, turns: readonly Turn[], settings: ChatSettings) {
  const said = turns.filter(({ role, text }) => role === 'user' || text !== '');
  const messages = said.map((turn): ChatMessage => ({ role: turn.role, content: contentOf(turn) }));
  const system: ChatMessage[] =
    settings.system.trim() === '' ? [] : [{ role: 'system', content: settings.system.trim() }];
  return { model, messages: [...system, ...messages], ...samplingOf(settings) };
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
