import { readSettings, type Settings } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import type { Authority } from './authority.ts';
import { readPeers } from './gossip/peers.ts';
import type { SnapshotStore } from './snapshot-store.ts';

interface CarriedChanges {
  /** Other issuers are trusted than before. */
  relisted(): void;
  settled(settings: Settings): void;
}

/** Settings and peers, read from where they are stored into what travels with the snapshot. */
export class CarriedSettings {
  readonly #env: Env;
  readonly #store: Pick<SnapshotStore, 'set'>;
  readonly #authority: Authority;
  readonly #changed: CarriedChanges;
  /** Readings are numbered. */
  #begun = 0;
  #done = 0;
  #first: Promise<void> | undefined;

  constructor(env: Env, store: Pick<SnapshotStore, 'set'>, authority: Authority, changed: CarriedChanges) {
    this.#env = env;
    this.#store = store;
    this.#authority = authority;
    this.#changed = changed;
  }

  /** As they are stored now. */
  async reload(): Promise<void> {
    const number = ++this.#begun;
    const [settings, peers] = await Promise.all([readSettings(this.#env), readPeers(this.#env)]);
    if (number < this.#done) return; // a later reading was faster
    this.#done = number;
    if (this.#authority.list(peers)) this.#changed.relisted();
    this.#changed.settled(settings);
    const { listed, issuer } = this.#authority;
    this.#store.set({ settings, issuers: listed, gateway: issuer.id });
  }

  /** One reading for all who ask meanwhile: a store that is down is not asked by every isolate twice a second. Never rejects. */
  first(): Promise<void> {
    this.#first ??= this.reload()
      .catch(() => {})
      .finally(() => {
        this.#first = undefined;
      });
    return this.#first;
  }
}
