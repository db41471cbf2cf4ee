/** The stores of a replica, one per issuer. A store is created when an update of a listed issuer first arrives. */
import { copyBytes } from './byte-codec.ts';
import type { Crypto } from './crypto-interface.ts';
import { issuerId } from './gateway-certificate.ts';
import { IssuerStore } from './issuer-store.ts';
import { LatticeError } from './lattice-error.ts';
import type { Entry } from './replica-entry.ts';

export class IssuerStores {
  readonly #crypto: Crypto;
  /** True if an issuer is listed. Changed only by `setIssuers`. */
  accepts: (issuer: string) => boolean;
  /** Stores by issuer. Bounded by the list of issuers. */
  readonly #stores = new Map<string, IssuerStore>();

  constructor(crypto: Crypto, accepts: (issuer: string) => boolean) {
    this.#crypto = crypto;
    this.accepts = accepts;
  }

  /** Copies the content of `others` into an empty object. */
  copy(others: IssuerStores): void {
    for (const [issuer, store] of others.#stores) this.#stores.set(issuer, store.fork());
  }

  /**
   * Replaces the list of issuers. Issuers that are no longer listed are removed with their sessions. @returns the
   * removed sessions
   */
  setIssuers(accepts: (issuer: string) => boolean): string[] {
    this.accepts = accepts;
    const gone: string[] = [];
    for (const [issuer, store] of this.#stores) {
      if (accepts(issuer)) continue;
      this.#stores.delete(issuer);
      gone.push(...store.entries.keys());
    }
    return gone;
  }

  /**
   * The store of an issuer, which is created if it does not exist. @param root the issuer's key @throws LatticeError if
   * the issuer is not listed
   */
  of(issuer: string, root: Uint8Array): IssuerStore {
    const known = this.#stores.get(issuer);
    if (known !== undefined) return known;
    if (!this.accepts(issuer)) throw new LatticeError('unknown_issuer', `issuer ${issuer} is not listed`);
    const store = new IssuerStore(issuer, copyBytes(root), this.#crypto);
    this.#stores.set(issuer, store);
    return store;
  }

  /** The store of the issuer with this root key. */
  ofRoot(root: Uint8Array): IssuerStore {
    return this.of(issuerId(root, this.#crypto), root);
  }

  get(issuer: string): IssuerStore | undefined {
    return this.#stores.get(issuer);
  }

  all(): Iterable<IssuerStore> {
    return this.#stores.values();
  }

  /** Issuers that have a store. */
  issuers(): string[] {
    return [...this.#stores.keys()];
  }

  entry(session: string): Entry | undefined {
    for (const store of this.#stores.values()) {
      const entry = store.entries.get(session);
      if (entry !== undefined) return entry;
    }
    return undefined;
  }
}
