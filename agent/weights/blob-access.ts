/** Decides which node may have which blob. */

import type { PeerName } from './peer-directory.ts';
import type { StoredManifest } from './stored-manifests.ts';

export class WeightsAccess {
  readonly #self: () => PeerName | undefined;
  /** Names of allowed clusters, in addition to this node's. */
  readonly #clusters: ReadonlySet<string>;
  /** Keys of blobs of public models; at most as many as the store has files. */
  #public: ReadonlySet<string> = new Set();

  constructor(self: () => PeerName | undefined, clusters: readonly string[]) {
    this.#self = self;
    this.#clusters = new Set(clusters);
  }

  /** Updates the keys of public blobs from the store's manifests. */
  setManifests(kept: readonly Pick<StoredManifest, 'manifest'>[]): void {
    const open = kept.filter(({ manifest }) => manifest.public).flatMap(({ manifest }) => manifest.files);
    this.#public = new Set(open.filter(({ exact }) => exact).map(({ key }) => key));
  }

  /**
   * True if this node exchanges weights with the peer: the peer is in this node's cluster, or in a cluster that the
   * operator allowed.
   */
  isNear({ cluster, provider }: PeerName): boolean {
    const self = this.#self();
    if (self === undefined) return false;
    // Each issuer names its clusters itself. So a node of another issuer is in another cluster, even if the names are
    // equal.
    if (provider.includes('@')) return this.#clusters.has(`${cluster}@${provider.split('@')[1]}`);
    return cluster === self.cluster || this.#clusters.has(cluster);
  }

  /** True if the peer may read lists of files and of models: only nodes of the same provider may. */
  isSameProvider(peer: PeerName): boolean {
    return this.isNear(peer) && peer.provider === this.#self()?.provider;
  }

  /** True if the key is that of a blob of a public model. */
  isPublic(key: string): boolean {
    return this.#public.has(key);
  }

  mayHave(peer: PeerName, key: string): boolean {
    return this.isSameProvider(peer) || (this.isNear(peer) && this.isPublic(key));
  }
}
