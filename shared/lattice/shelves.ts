/** The per-issuer stores of a replica, created when a listed issuer first occurs. */
import { ownBytes } from './bytes.ts';
import { issuerId } from './certificate.ts';
import type { Crypto } from './crypto.ts';
import type { Entry } from './entry.ts';
import { LatticeError } from './error.ts';
import { Shelf } from './shelf.ts';

export class Shelves {
  readonly #crypto: Crypto;
  /** True if an issuer is listed; changed only by `setIssuers`. */
  accepts: (issuer: string) => boolean;
  /** By issuer. Bounded by the list of issuers. */
  readonly #shelves = new Map<string, Shelf>();

  constructor(crypto: Crypto, accepts: (issuer: string) => boolean) {
    this.#crypto = crypto;
    this.accepts = accepts;
  }

  /** Takes over the content of `others`; only for an empty object. */
  copy(others: Shelves): void {
    for (const [issuer, shelf] of others.#shelves) this.#shelves.set(issuer, shelf.fork());
  }

  /**
   * Replaces the list of issuers. Issuers that are no longer listed are removed with their sessions. @returns those
   * sessions
   */
  setIssuers(accepts: (issuer: string) => boolean): string[] {
    this.accepts = accepts;
    const gone: string[] = [];
    for (const [issuer, shelf] of this.#shelves) {
      if (accepts(issuer)) continue;
      this.#shelves.delete(issuer);
      gone.push(...shelf.entries.keys());
    }
    return gone;
  }

  /** `root`: the issuer's key. @throws LatticeError if the issuer is not listed */
  of(issuer: string, root: Uint8Array): Shelf {
    const known = this.#shelves.get(issuer);
    if (known !== undefined) return known;
    if (!this.accepts(issuer)) throw new LatticeError('unknown_issuer', `issuer ${issuer} is not listed here`);
    const shelf = new Shelf(issuer, ownBytes(root), this.#crypto);
    this.#shelves.set(issuer, shelf);
    return shelf;
  }

  /** `of` the issuer whose key this is. */
  ofRoot(root: Uint8Array): Shelf {
    return this.of(issuerId(root, this.#crypto), root);
  }

  get(issuer: string): Shelf | undefined {
    return this.#shelves.get(issuer);
  }

  all(): Iterable<Shelf> {
    return this.#shelves.values();
  }

  /** Issuers of which anything is known. */
  issuers(): string[] {
    return [...this.#shelves.keys()];
  }

  entry(session: string): Entry | undefined {
    for (const shelf of this.#shelves.values()) {
      const entry = shelf.entries.get(session);
      if (entry !== undefined) return entry;
    }
    return undefined;
  }
}
