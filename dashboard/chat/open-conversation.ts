/** One open conversation. It requests answers, collects streamed text until the next paint, and saves itself. */

import { neverRejects } from '../../shared/timing/in-background.ts';
import { type AnswerFacts, streamChat, type ToolCallDelta, type Waiting } from '../api/chat.ts';
import { t } from '../texts/index.ts';
import { messageOf } from '../ui/feedback.tsx';
import { type ChatSettings, SEALED } from './chat-settings.ts';
import {
  type Attachment,
  type Conversation,
  changed,
  chooseTurn,
  pathTo,
  requestOf,
  shownBranch,
  shownTurns,
  type Thread,
  type Turn,
  titleOf,
  withToolCall,
  withTurn,
} from './conversation.ts';
import type { ConversationStore } from './conversation-store.ts';
import { merged } from './merge-conversations.ts';
import { newId } from './new-conversation.ts';

/** Received text is saved after at most this time, in case the tab is closed. */
const SAVE_EVERY_MS = 1_000;
/** Bounds on the pause between two paints. Users do not read faster than the minimum. */
const REST_MIN_MS = 30;
const REST_MAX_MS = 250;
/** Pause after a paint, as a multiple of the time that the paint took. */
const REST_TIMES = 2;
/** A background tab gets no animation frames, so a timer paints. */
const HIDDEN_MS = 200;

/** A change of a turn at the next paint. */
type Change = (turn: Turn) => Turn;

export class OpenConversation {
  readonly #store: ConversationStore;
  readonly #listeners = new Set<() => void>();
  /** Controllers that abort running answers, by the id of the answer's turn. At most one per thread. */
  readonly #running = new Map<string, AbortController>();
  #pending = new Map<string, Change[]>();
  #painting = false;
  /** Pause between two paints, so that most frames are free for scrolling and typing. */
  #restMs = 0;
  #saving: ReturnType<typeof setTimeout> | undefined;
  #conversation: Conversation;
  /** The last stored state that this tab knows; undefined: not stored yet. */
  #base: Conversation | undefined;
  /** Store operations run one after the other: each continues from the result of the previous one. */
  #storing: Promise<unknown> = Promise.resolve();
  #isForgotten = false;
  /** The error of the last save. */
  saveError: unknown;

  constructor(store: ConversationStore, conversation: Conversation, isStored = false) {
    this.#store = store;
    this.#conversation = conversation;
    this.#base = isStored ? conversation : undefined;
  }

  /** The conversation's current state: a new object after each change. */
  get conversation(): Conversation {
    return this.#conversation;
  }

  get isBusy(): boolean {
    return this.#running.size > 0;
  }

  get isEmpty(): boolean {
    return this.#conversation.threads.every(({ turns }) => Object.keys(turns).length === 0);
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Adds a question to every thread and requests an answer from its model. */
  ask(text: string, attachments: readonly Attachment[]): void {
    const id = newId();
    const { threads, title, titled } = this.#conversation;
    this.#set({
      title: titled || !this.isEmpty ? title : titleOf(text) || (attachments[0]?.name ?? ''),
      threads: threads.map((thread) => withTurn(thread, userTurn(id, lastOf(thread), text, attachments))),
    });
    for (const n of threads.keys()) neverRejects(this.#answer(n, id));
  }

  /** Asks a changed question, on a new branch, in each thread that has this question. */
  edit(id: string, text: string, attachments: readonly Attachment[]): void {
    const next = newId();
    const asked: number[] = [];
    const threads = this.#conversation.threads.map((thread, n) => {
      const before = thread.turns[id];
      if (before === undefined) return thread;
      asked.push(n);
      return withTurn(thread, userTurn(next, before.parent, text, attachments));
    });
    this.#set({ threads });
    for (const n of asked) neverRejects(this.#answer(n, next));
  }

  /** Requests another answer to the same question, next to the existing one. */
  regenerate(n: number, id: string): void {
    const parent = this.#conversation.threads[n]?.turns[id]?.parent;
    if (parent != null) neverRejects(this.#answer(n, parent));
  }

  /** Shows another branch in place of this turn. */
  show(n: number, turn: Turn, at: number): void {
    this.#setThread(n, (thread) => {
      const other = shownBranch(thread).find((one) => one.turn.id === turn.id)?.branches[at];
      return other === undefined ? thread : chooseTurn(thread, other);
    });
    this.#saveSoon();
  }

  /** Aborts running answers; the received text stays. */
  stop(): void {
    for (const controller of this.#running.values()) controller.abort();
  }

  setModel(n: number, model: string): void {
    this.#setThread(n, (thread) => ({ ...thread, model }));
    this.#saveSoon();
  }

  setSettings(settings: ChatSettings): void {
    this.#set({ settings });
    this.#saveSoon();
  }

  setTitle(title: string): void {
    this.#set({ title, titled: true });
    this.#saveSoon();
  }

  /** Also asks a second model from here on. */
  compareWith(model: string): void {
    const [first] = this.#conversation.threads;
    if (first === undefined || this.isBusy) return;
    this.#set({ threads: [first, { ...first, model }] });
    this.#saveSoon();
  }

  /** Continues with one of two threads and drops the other. */
  keep(n: number): void {
    const thread = this.#conversation.threads[n];
    if (thread === undefined) return;
    this.stop();
    this.#set({ threads: [thread] });
    this.#saveSoon();
  }

  /** The conversation is being deleted: it is not saved again. */
  forget(): void {
    this.#isForgotten = true;
    this.stop();
  }

  /** Aborts running answers and saves. Listeners receive no more changes. */
  close(): void {
    this.stop();
    this.#paint();
    if (this.#saving !== undefined) this.#saveNow();
    this.#listeners.clear();
  }

  async #answer(n: number, parent: string): Promise<void> {
    const thread = this.#conversation.threads[n];
    if (thread === undefined) return;
    const id = newId();
    const { model } = thread;
    const { settings } = this.#conversation;
    const controller = new AbortController();
    this.#running.set(id, controller);
    const turn: Turn = { id, parent, role: 'assistant', text: '', model, state: 'streaming', at: Date.now() };
    this.#setThread(n, (one) => withTurn(one, { ...turn, waiting: { reason: 'sent' } }));
    const change = (made: Change) => this.#change(id, made);
    try {
      const request = requestOf(model, pathTo(thread, parent), settings);
      const { id: conversation } = this.#conversation;
      const way = { conversation, trusted: settings.trusted.trim(), sealed: settings.sealed === SEALED };
      await streamChat(request, way, eventsOf(change, Date.now()), controller.signal);
      change(({ waiting: _, ...rest }) => ({ ...rest, state: 'done' }));
    } catch (error) {
      const stopped = controller.signal.aborted;
      change(({ waiting: _, ...rest }) =>
        stopped ? { ...rest, state: 'stopped' } : { ...rest, state: 'failed', error: messageOf(error) },
      );
    } finally {
      this.#running.delete(id);
      this.#paint();
      this.#saveNow();
    }
  }

  #change(id: string, change: Change): void {
    const list = this.#pending.get(id);
    if (list === undefined) this.#pending.set(id, [change]);
    else list.push(change);
    if (this.#painting) return;
    this.#painting = true;
    if (document.hidden) setTimeout(() => this.#paint(), HIDDEN_MS);
    else setTimeout(() => requestAnimationFrame(() => this.#paint()), this.#restMs);
  }

  #paint(): void {
    this.#painting = false;
    const pending = this.#pending;
    if (pending.size === 0) return;
    this.#pending = new Map();
    const threads = this.#conversation.threads.map((thread) => {
      let next = thread;
      for (const [id, changes] of pending)
        next = changed(next, id, (turn) => changes.reduce((made, change) => change(made), turn));
      return next;
    });
    const from = performance.now();
    this.#set({ threads });
    // React renders in a task directly after this one, so this timer measures the rendering too.
    setTimeout(() => {
      this.#restMs = Math.min(REST_MAX_MS, Math.max(REST_MIN_MS, REST_TIMES * (performance.now() - from)));
    });
    this.#saveSoon();
  }

  #setThread(n: number, change: (thread: Thread) => Thread): void {
    this.#set({ threads: this.#conversation.threads.map((thread, at) => (at === n ? change(thread) : thread)) });
  }

  #set(change: Partial<Conversation>): void {
    this.#conversation = { ...this.#conversation, ...change };
    for (const listener of this.#listeners) listener();
  }

  #saveSoon(): void {
    this.#saving ??= setTimeout(() => this.#saveNow(), SAVE_EVERY_MS);
  }

  #saveNow(): void {
    clearTimeout(this.#saving);
    this.#saving = undefined;
    if (this.isEmpty || this.#isForgotten) return;
    this.#inTurn(async () => {
      const ours = { ...this.#conversation, updatedAt: Date.now() };
      this.#conversation = ours;
      this.#found(ours, await this.#store.save(ours, this.#base));
    });
  }

  /** Call if another tab changed the conversation. */
  reload(): void {
    if (this.#isForgotten) return;
    this.#inTurn(async () => {
      const base = this.#base;
      if (base === undefined) return;
      const stored = await this.#store.get(base.id);
      if (stored?.updatedAt !== base.updatedAt) this.#found(base, stored);
    });
  }

  #inTurn(work: () => Promise<void>): void {
    this.#storing = this.#storing.then(work).then(
      () => this.#isForgotten || this.#report(undefined),
      (error: unknown) => this.#report(error),
    );
  }

  /**
   * Merges what the store has into this conversation; `stored` undefined: another tab deleted it. `known`: the last
   * state of this conversation that `stored` contains.
   */
  #found(known: Conversation, stored: Conversation | undefined): void {
    if (this.#isForgotten) return;
    if (stored === undefined) {
      this.forget();
      this.#report(new Error(t.chat.deletedElsewhere));
      return;
    }
    this.#base = stored;
    if (stored !== known) this.#set(merged(known, this.#conversation, stored));
  }

  #report(error: unknown): void {
    if (error === this.saveError) return;
    this.saveError = error;
    this.#set({});
  }
}

const lastOf = (thread: Thread) => shownTurns(thread).at(-1)?.id ?? null;

function userTurn(id: string, parent: string | null, text: string, attachments: readonly Attachment[]): Turn {
  const files = attachments.length === 0 ? {} : { attachments: [...attachments] };
  return { id, parent, role: 'user', text, ...files, state: 'done', at: Date.now() };
}

/** Turns events of the stream into changes of the turn. `startedAt` in milliseconds since 1970. */
function eventsOf(change: (change: Change) => void, startedAt: number) {
  return {
    onText: (text: string) =>
      change(({ waiting: _, ...turn }) => ({ ...turn, ...thoughtFor(turn, startedAt), text: turn.text + text })),
    onReasoning: (text: string) =>
      change(({ waiting: _, ...turn }) => ({ ...turn, reasoning: (turn.reasoning ?? '') + text })),
    onToolCall: (delta: ToolCallDelta) =>
      change(({ waiting: _, ...turn }) => ({ ...turn, toolCalls: withToolCall(turn.toolCalls ?? [], delta) })),
    onFacts: (facts: AnswerFacts) => change((turn) => ({ ...turn, facts })),
    onWaiting: (waiting: Waiting) => change((turn) => ({ ...turn, waiting })),
  };
}

/** The first text of the answer ends the reasoning. */
function thoughtFor({ reasoning, reasoningMs }: Turn, startedAt: number): { reasoningMs?: number } {
  return reasoning === undefined || reasoningMs !== undefined ? {} : { reasoningMs: Date.now() - startedAt };
}

/**
 * Call for a conversation from the store. If its page was closed while an answer was streaming, the answer has failed.
 */
export function settled(conversation: Conversation): Conversation {
  const threads = conversation.threads.map((thread) => ({
    ...thread,
    turns: Object.fromEntries(
      Object.entries(thread.turns).map(([id, { waiting, ...turn }]) => [
        id,
        turn.state === 'streaming' ? { ...turn, state: 'failed' as const, error: t.chat.pageClosed } : turn,
      ]),
    ),
  }));
  return { ...conversation, threads };
}
