import { type GatewaySettings, readGatewaySettings } from '../accounts/gateway-settings.ts';
import type { Env } from '../env.ts';
import type { IssuerAuthority } from './issuer-authority.ts';
import { readGatewayPeers } from './peer-institutions.ts';
import type { SnapshotStore } from './snapshot-store.ts';

interface SettingsListener {
  /** Called when the list of accepted issuers has changed. */
  onIssuers(): void;
  onSettings(settings: GatewaySettings): void;
}

/** Reads settings and peer institutions from D1 and adds them to the snapshot. */
export class SnapshotSettings {
  readonly #env: Env;
  readonly #store: Pick<SnapshotStore, 'set'>;
  readonly #authority: IssuerAuthority;
  readonly #changed: SettingsListener;
  /** Number of the latest read that began. `#done`: number of the latest read whose result was used. */
  #begun = 0;
  #done = 0;
  #first: Promise<void> | undefined;

  constructor(env: Env, store: Pick<SnapshotStore, 'set'>, authority: IssuerAuthority, changed: SettingsListener) {
    this.#env = env;
    this.#store = store;
    this.#authority = authority;
    this.#changed = changed;
  }

  /** Reads the stored settings and peer institutions. */
  async reload(): Promise<void> {
    const number = ++this.#begun;
    const [settings, peers] = await Promise.all([readGatewaySettings(this.#env), readGatewayPeers(this.#env)]);
    if (number < this.#done) return; // a later read was faster
    this.#done = number;
    if (this.#authority.list(peers)) this.#changed.onIssuers();
    this.#changed.onSettings(settings);
    const { listed, issuer } = this.#authority;
    this.#store.set({ settings, issuers: listed, gateway: issuer.id });
  }

  /**
   * Reads once for all isolates that ask meanwhile. Otherwise each isolate would cause a query twice a second while D1
   * is unavailable. Never rejects.
   */
  first(): Promise<void> {
    this.#first ??= this.reload()
      .catch(() => {})
      .finally(() => {
        this.#first = undefined;
      });
    return this.#first;
  }
}
