/** Models on this node's disk, and the keys by which nodes request manifests and blobs. */
import {
  blobsOf,
  type ManifestFile,
  manifestBytes,
  type WeightsManifest,
} from '../../shared/weights/weights-manifest.ts';
import type { ModelHolding } from '../host/control-protocol.ts';
import { contentDigest } from './sources/source-listing.ts';
import { isFresh, type StoredManifest } from './stored-manifests.ts';
import type { Store } from './weights-store.ts';

export class Inventory {
  readonly #store: Store;
  /** Returns the provider. Undefined while this node is in no mesh. */
  readonly #provider: () => string | undefined;
  /** Returns the time in milliseconds since 1970. */
  readonly #now: () => number;

  constructor(store: Store, provider: () => string | undefined, now: () => number) {
    this.#store = store;
    this.#provider = provider;
    this.#now = now;
  }

  /**
   * The key of a fresh manifest. A manifest is only as trustworthy as the node that provides it, so it is requested
   * only from nodes of the same provider.
   */
  manifestKey(source: string): string {
    return contentDigest(`manifest ${this.#provider() ?? ''} ${source}`);
  }

  /**
   * The key of a manifest that is no longer fresh. It is useful if its source cannot be read, but it is not a reason to
   * skip reading the source.
   */
  olderManifestKey(source: string): string {
    return contentDigest(`older manifest ${this.#provider() ?? ''} ${source}`);
  }

  /**
   * The key of a blob. A public blob is the same for all providers. Others are requested only from the provider's own
   * nodes.
   */
  blobKey(manifest: Pick<WeightsManifest, 'public'>, { key, exact }: ManifestFile): string {
    return manifest.public && exact ? key : contentDigest(`blob ${this.#provider() ?? ''} ${key}`);
  }

  /** Keys of all manifests and complete blobs on this node. */
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

  /** Returns the models on this node. */
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
