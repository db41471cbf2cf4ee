import { useEffect, useMemo, useState } from 'react';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import {
  beginKeeping,
  deleteAllKept,
  deleteKept,
  listKept,
  readKept,
  writeKept,
} from '../../api/kept-conversations.ts';
import type { Conversation } from '../conversation.ts';
import { ConversationStore } from '../conversation-store.ts';
import { newKey, open, openKey, seal } from './box-cipher.ts';
import { exchange } from './exchange.ts';
import { type Keeping, KeptState } from './kept-state.ts';

/** Pause between two exchanges of an open page. */
const EVERY_MS = 60_000;
/** Pause after a change in this browser: a conversation that is being typed changes often. */
const AFTER_MS = 2_000;
/** The gateway takes 1.9 MB. */
const BOX_MAX_BYTES = 1_900_000;

export type KeepState =
  /** The conversations are only in this browser. `known`: other browsers keep conversations at the gateway. */
  { state: 'off'; known: boolean } | { state: 'on'; tooLarge: number; error?: unknown };

/** Keeps the conversations of one person at the gateway, if the person wants that. */
export class Keeper {
  readonly #local: ConversationStore;
  readonly #kept: KeptState;
  readonly #lock: string;
  readonly #onChange: (state: KeepState) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;
  #unwatch: () => void = () => {};

  constructor(person: string, onChange: (state: KeepState) => void) {
    // Its own store: the page's store then hears of conversations that came from the gateway.
    this.#local = new ConversationStore(person);
    this.#kept = new KeptState(person);
    this.#lock = `otela-keep-${person}`;
    this.#onChange = onChange;
  }

  open(): void {
    this.#isClosed = false;
    this.#unwatch = this.#local.watch(() => this.#later(AFTER_MS));
    document.addEventListener('visibilitychange', this.#visible);
    neverRejects(this.#run());
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#unwatch();
    document.removeEventListener('visibilitychange', this.#visible);
  }

  /** Begins to keep conversations, or continues with those of another browser. @throws WrongKeyError, Problem */
  async begin(passphrase: string): Promise<void> {
    const { key } = await listKept(0);
    if (key === null) {
      const made = await newKey(passphrase);
      await beginKeeping({ salt: made.salt, check: made.check });
      await this.#kept.setKeeping({ salt: made.salt, key: made.key, revision: 0 });
    } else {
      const opened = await openKey(passphrase, key);
      await this.#kept.clear();
      await this.#kept.setKeeping({ salt: key.salt, key: opened, revision: 0 });
    }
    await this.#run();
  }

  /** This browser no longer exchanges. With `everywhere`, all conversations at the gateway are deleted. */
  async end(everywhere: boolean): Promise<void> {
    if (everywhere) await deleteAllKept();
    await this.#kept.clear();
    await this.#run();
  }

  readonly #visible = () => {
    if (document.visibilityState === 'visible') this.#later(0);
  };

  #later(ms: number): void {
    clearTimeout(this.#timer);
    if (!this.#isClosed) this.#timer = setTimeout(() => neverRejects(this.#run()), ms);
  }

  async #run(): Promise<void> {
    try {
      // Two tabs would give the same change twice.
      await navigator.locks.request(this.#lock, () => this.#exchange().catch((error: unknown) => this.#failed(error)));
    } finally {
      if (document.visibilityState === 'visible') this.#later(EVERY_MS);
    }
  }

  async #exchange(): Promise<void> {
    const keeping = await this.#kept.keeping();
    if (keeping === undefined) {
      const { key } = await listKept(0);
      return this.#tell({ state: 'off', known: key !== null });
    }
    const { key } = keeping;
    const stores = {
      local: this.#local,
      kept: this.#kept,
      remote: { list: listKept, read: readKept, write: writeKept, remove: deleteKept },
      cipher: {
        seal: (id: string, text: string) => seal(key, id, text),
        open: (id: string, box: Uint8Array<ArrayBuffer>) => open(key, id, box),
      },
      maxBytes: BOX_MAX_BYTES,
    };
    const result = await exchange<Conversation, Keeping>(stores, keeping);
    if (result.state === 'ended') return this.#exchange();
    const { tooLarge, failed } = result;
    this.#tell({ state: 'on', tooLarge, ...(failed !== undefined && { error: failed }) });
  }

  async #failed(error: unknown): Promise<void> {
    const isOn = (await this.#kept.keeping()) !== undefined;
    this.#tell(isOn ? { state: 'on', tooLarge: 0, error } : { state: 'off', known: false });
  }

  #tell(state: KeepState): void {
    if (!this.#isClosed) this.#onChange(state);
  }
}

/** @param person undefined: this gateway keeps no conversations of this user */
export function useKeeping(person: string | undefined): { state: KeepState | undefined; keeper: Keeper | undefined } {
  const [state, setState] = useState<KeepState>();
  const keeper = useMemo(() => (person === undefined ? undefined : new Keeper(person, setState)), [person]);
  useEffect(() => {
    keeper?.open();
    return () => keeper?.close();
  }, [keeper]);
  return { state, keeper };
}
