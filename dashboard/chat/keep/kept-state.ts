/** What this browser knows about the conversations at the gateway: the key, and the state of the last exchange. */
import { type DBSchema, type IDBPDatabase, openDB } from 'idb';
import type { Exchanges, KeptItem, KeptStore } from './exchange.ts';

export interface Keeping extends Exchanges {
  /** The browser stores it without being able to read it. */
  key: CryptoKey;
}

interface Schema extends DBSchema {
  keeping: { key: string; value: Keeping };
  items: { key: string; value: KeptItem };
}

const ONLY = 'keeping';

export class KeptState implements KeptStore<Keeping> {
  readonly #opening: Promise<IDBPDatabase<Schema>>;

  /** @param person a user's id */
  constructor(person: string) {
    this.#opening = openDB<Schema>(`otela-keep-${person}`, 1, {
      upgrade: (db) => {
        db.createObjectStore('keeping');
        db.createObjectStore('items', { keyPath: 'id' });
      },
    });
  }

  async keeping(): Promise<Keeping | undefined> {
    return (await this.#opening).get('keeping', ONLY);
  }

  async setKeeping(keeping: Keeping): Promise<void> {
    await (await this.#opening).put('keeping', keeping, ONLY);
  }

  async items(): Promise<Map<string, KeptItem>> {
    const all = await (await this.#opening).getAll('items');
    return new Map(all.map((item) => [item.id, item]));
  }

  async put(item: KeptItem): Promise<void> {
    await (await this.#opening).put('items', item);
  }

  async remove(id: string): Promise<void> {
    await (await this.#opening).delete('items', id);
  }

  async clear(): Promise<void> {
    const transaction = (await this.#opening).transaction(['keeping', 'items'], 'readwrite');
    await Promise.all([
      transaction.objectStore('keeping').clear(),
      transaction.objectStore('items').clear(),
      transaction.done,
    ]);
  }
}
