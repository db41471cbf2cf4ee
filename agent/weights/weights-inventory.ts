/** Models on this node's disk, and the keys by which nodes request lists and blobs. */
import {
  blobsOf,
  type ManifestFile,
  manifestBytes,
  type WeightsManifest,
} from '../../shared/weights/weights-manifest.ts';
import type { ModelHolding } from '../host/control-protocol.ts';
import { contentDigest } from './sources/manifest-file.ts';
import { isFresh, type StoredManifest } from './stored-manifests.ts';
import type { Store } from './weights-store.ts';

export class Inventory {
  readonly #store: Store;
  /** Undefined while this node is in no mesh. */
  readonly #provider: () => string | undefined;
  /** Milliseconds since 1970. */
  readonly #now: () => number;

  constructor(store: Store, provider: () => string | undefined, now: () => number) {
    this.#store = store;
    this.#provider = provider;
    this.#now = now;
  }

  /**
   * A list is only as trustworthy as the node that provides it, so it is requested only from nodes of the same
   * provider.
   */
  manifestKey(source: string): string {
    return contentDigest(`manifest ${this.#provider() ?? ''} ${source}`);
  }

  /**
   * A list that is no longer fresh has another key: it is useful if its source cannot be read, but no reason not to
   * read it.
   */
  olderManifestKey(source: string): string {
    return contentDigest(`older manifest ${this.#provider() ?? ''} ${source}`);
  }

  /** A public blob is the same for everybody; others are requested only from the provider's own nodes. */
  blobKey(manifest: Pick<WeightsManifest, 'public'>, { key, exact }: ManifestFile): string {
    return manifest.public && exact ? key : contentDigest(`blob ${this.#provider() ?? ''} ${key}`);
  }

  /** Keys of all lists here, and of all complete blobs. */
  async keys(): Promise<string[]> {
    const keys: string[] = [];
    for (const kept of await this.#store.manifests.all()) {
      const { manifest } = kept;
      const { source } = manifest;
      keys.push(isFresh(kept, this.#now()) ? this.manifestKey(source) : this.olderManifestKey(source));
      for (const file of blobsOf(manifest)) if (await this.#store.has(file)) keys.push(this.blobKey(manifest, file));
    }
    return keys;
  }

  /** Models here. */
  async held(): Promise<ModelHolding[]> {
    return Promise.all((await this.#store.manifests.all()).map((kept) => this.#heldOf(kept)));
  }

  async #heldOf({ manifest, usedAt, pinned }: StoredManifest): Promise<ModelHolding> {
    let here = 0;
    for (const file of blobsOf(manifest)) here += await this.#store.bytesHere(file);
    return {
      source: manifest.source,
      revision: manifest.revision,
      bytes: manifestBytes(manifest),
      here,
      used_at: new Date(usedAt).toISOString(),
      public: manifest.public,
      pinned,
    };
  }
}
