/** One user's conversations and presets in the browser's own storage (IndexedDB). The gateway stores none of them. */
import { type DBSchema, type IDBPDatabase, openDB } from 'idb';
import type { ChatSettings } from './chat-settings.ts';
import type { Conversation } from './conversation.ts';
import { merged } from './merge-conversations.ts';

/** The part that the list shows. */
export interface Summary {
  id: string;
  title: string;
  updatedAt: number;
  /**
   * The requested model; if two models are compared, the first one. Absent: an earlier version saved the conversation.
   */
  model?: string;
}

export interface Preset {
  name: string;
  model: string;
  settings: ChatSettings;
}

interface Schema extends DBSchema {
  conversations: { key: string; value: Conversation };
  summaries: { key: string; value: Summary };
  /** The text in lower case, for the search. Without pictures, which would be most of the bytes. */
  texts: { key: string; value: string };
  presets: { key: string; value: Preset };
}

/** Maximum number of characters of one conversation that are searched. */
const SEARCHED_MAX_CHARS = 100_000;
/** The channel on which tabs notify each other of changes. */
const CHANNEL = 'otela-conversations';

export class ConversationStore {
  readonly #opening: Promise<IDBPDatabase<Schema>>;
  readonly #channel = new BroadcastChannel(CHANNEL);

  /** `person`: a user's id; users of one browser do not see each other's conversations. */
  constructor(person: string) {
    this.#opening = openDB<Schema>(`otela-chat-${person}`, 1, {
      upgrade: (db) => {
        db.createObjectStore('conversations', { keyPath: 'id' });
        db.createObjectStore('summaries', { keyPath: 'id' });
        db.createObjectStore('texts');
        db.createObjectStore('presets', { keyPath: 'name' });
      },
    });
  }

  /** Calls back if another tab changed a conversation; '' stands for all. Returns a function that ends it. */
  watch(onChange: (id: string) => void): () => void {
    const listener = ({ data }: MessageEvent<string>) => onChange(data);
    this.#channel.addEventListener('message', listener);
    return () => this.#channel.removeEventListener('message', listener);
  }

  /** Returns the summaries of all conversations, newest first. */
  async list(): Promise<Summary[]> {
    const all = await (await this.#opening).getAll('summaries');
    return all.sort((a, b) => b.updatedAt - a.updatedAt);
  }

  async get(id: string): Promise<Conversation | undefined> {
    return (await this.#opening).get('conversations', id);
  }

  /**
   * Returns the stored state, with the changes of other tabs since `base`, the last stored state that this tab knows.
   * Undefined: another tab deleted it.
   * @throws DOMException QuotaExceededError if the browser's storage is full
   */
  async save(ours: Conversation, base?: Conversation): Promise<Conversation | undefined> {
    const db = await this.#opening;
    const transaction = db.transaction(['conversations', 'summaries', 'texts'], 'readwrite');
    const { id } = ours;
    const before = await transaction.objectStore('summaries').get(id);
    if (before === undefined && base !== undefined) return undefined;
    const isOurs = before === undefined || base === undefined || before.updatedAt === base.updatedAt;
    const stored = isOurs ? undefined : await transaction.objectStore('conversations').get(id);
    const conversation = stored === undefined || base === undefined ? ours : merged(base, ours, stored);
    const { title, updatedAt, threads } = conversation;
    await Promise.all([
      transaction.objectStore('conversations').put(conversation),
      transaction.objectStore('summaries').put({ id, title, updatedAt, model: threads[0]?.model ?? '' }),
      transaction.objectStore('texts').put(searchedText(conversation), id),
      transaction.done,
    ]);
    this.#channel.postMessage(id);
    return conversation;
  }

  async rename(id: string, title: string): Promise<void> {
    const conversation = await this.get(id);
    if (conversation !== undefined)
      await this.save({ ...conversation, title, titled: true, updatedAt: Date.now() }, conversation);
  }

  async delete(id: string): Promise<void> {
    const db = await this.#opening;
    const transaction = db.transaction(['conversations', 'summaries', 'texts'], 'readwrite');
    await Promise.all([
      transaction.objectStore('conversations').delete(id),
      transaction.objectStore('summaries').delete(id),
      transaction.objectStore('texts').delete(id),
      transaction.done,
    ]);
    this.#channel.postMessage(id);
  }

  async deleteAll(): Promise<void> {
    const db = await this.#opening;
    const transaction = db.transaction(['conversations', 'summaries', 'texts'], 'readwrite');
    await Promise.all([
      transaction.objectStore('conversations').clear(),
      transaction.objectStore('summaries').clear(),
      transaction.objectStore('texts').clear(),
      transaction.done,
    ]);
    this.#channel.postMessage('');
  }

  /** Ids of conversations that contain every word. */
  async search(query: string): Promise<Set<string>> {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const db = await this.#opening;
    const [ids, texts] = await Promise.all([db.getAllKeys('texts'), db.getAll('texts')]);
    return new Set(ids.filter((_, n) => words.every((word) => texts[n]?.includes(word))));
  }

  async presets(): Promise<Preset[]> {
    return (await this.#opening).getAll('presets');
  }

  /** @throws DOMException QuotaExceededError if the browser's storage is full */
  async savePreset(preset: Preset): Promise<void> {
    await (await this.#opening).put('presets', preset);
  }

  async deletePreset(name: string): Promise<void> {
    await (await this.#opening).delete('presets', name);
  }
}

function searchedText({ title, threads }: Conversation): string {
  const said = threads.flatMap(({ turns }) => Object.values(turns).map(({ text }) => text));
  return [title, ...said].join('\n').slice(0, SEARCHED_MAX_CHARS).toLowerCase();
}
