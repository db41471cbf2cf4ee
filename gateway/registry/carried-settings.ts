import { readSettings } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import type { Authority } from './authority.ts';
import { readPeers } from './gossip/peers.ts';
import type { SnapshotStore } from './snapshot-store.ts';

/** Settings and peers, read from where they are stored into what travels with the snapshot. */
export class CarriedSettings {
  readonly #env: Env;
  readonly #store: Pick<SnapshotStore, 'set'>;
  readonly #authority: Authority;
  readonly #relisted: () => void;
  /** Readings are numbered. */
  #begun = 0;
  #done = 0;
  #first: Promise<void> | undefined;

  /** `relisted` is called when other issuers are trusted than before. */
  constructor(env: Env, store: Pick<SnapshotStore, 'set'>, authority: Authority, relisted: () => void) {
    this.#env = env;
    this.#store = store;
    this.#authority = authority;
    this.#relisted = relisted;
  }

  /** As they are stored now. */
  async reload(): Promise<void> {
    const number = ++this.#begun;
    const [settings, peers] = await Promise.all([readSettings(this.#env), readPeers(this.#env)]);
    if (number < this.#done) return; // a later reading was faster
    this.#done = number;
    if (this.#authority.list(peers)) this.#relisted();
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
