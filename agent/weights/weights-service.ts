/**
 * The weights of one agent: what it stores, sends to its neighbors, and pulls from them. Outlives the agent's sessions.
 */

import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { PIECE_BYTES } from '../../shared/weights/blob-pieces.ts';
import {
  blobsOf,
  type ManifestFile,
  manifestBytes,
  type WeightsManifest,
} from '../../shared/weights/weights-manifest.ts';
import { sourceText } from '../../shared/weights/weights-source.ts';
import type { ModelHolding, PullStatus } from '../host/control-protocol.ts';
import type { Blob } from './blob.ts';
import { WeightsAccess } from './blob-access.ts';
import { BlobPull } from './blob-pull.ts';
import { type ReaderLimits, Uploads } from './blob-uploads.ts';
import { CoordinatorClient } from './coordinator-client.ts';
import type { Environment } from './environment/unpacked-environments.ts';
import { pullManifest, retryWithNewListing } from './manifest-pull.ts';
import type { PeerName, Peers } from './peer-directory.ts';
import { RecentPulls } from './recent-pulls.ts';
import { Sha256Thread } from './sha256-thread.ts';
import type { BlobSource } from './sources/blob-source.ts';
import { openSource, readSource } from './sources/open-source.ts';
import { contentDigest } from './sources/source-listing.ts';
import type { StoredManifest } from './stored-manifests.ts';
import { WeightsClient } from './weights-client.ts';
import { PULL_LIMITS, type PullLimits, type WeightsConfig } from './weights-config.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';
import { Inventory } from './weights-inventory.ts';
import { SEND_CHUNK_BYTES, WeightsServer } from './weights-server.ts';
import { Store } from './weights-store.ts';

export interface WeightsOptions {
  config: WeightsConfig;
  peers: Peers;
  env: Readonly<Record<string, string | undefined>>;
  log(line: string): void;
  pieceBytes?: number;
  limits?: PullLimits;
  settleMs?: number;
  stallMs?: number;
  readers?: ReaderLimits;
  /** Replaced in tests. */
  openSource?: typeof openSource;
  now?: () => number;
}

interface PullResult {
  /** Path of the snapshot's directory. */
  path: string;
  manifest: WeightsManifest;
  status: PullStatus;
}

export class WeightsService {
  readonly store: Store;
  readonly uploads: Uploads;
  readonly #options: WeightsOptions;
  readonly #hasher = new Sha256Thread();
  readonly #inventory: Inventory;
  readonly #access: WeightsAccess;
  readonly #client: WeightsClient;
  readonly #server: WeightsServer;
  readonly #coordination: CoordinatorClient;
  readonly #pulls = new RecentPulls<PullResult>();
  /** Sources that were pulled with `keep`: an engine uses them, so they must not be evicted. */
  readonly #keep = new Set<string>();
  /** Sources of `#keep` that are complete on disk and that the engine uses. */
  readonly #inUse = new Set<string>();
  readonly #stop = new AbortController();

  constructor(options: WeightsOptions) {
    const { config, peers, log, pieceBytes = PIECE_BYTES, settleMs, stallMs } = options;
    const { directory, limitBytes, uploads, rate, clusters } = config;
    this.#options = options;
    this.store = new Store({ directory, limitBytes, pieceBytes, hasher: this.#hasher, log });
    this.#inventory = new Inventory(this.store, () => peers.self()?.provider, options.now ?? Date.now);
    this.uploads = new Uploads(uploads, rate, SEND_CHUNK_BYTES, options.readers);
    this.#access = new WeightsAccess(() => peers.self(), clusters);
    this.#client = new WeightsClient(peers);
    this.#coordination = new CoordinatorClient({
      peers,
      access: this.#access,
      client: this.#client,
      fanout: uploads,
      held: () => this.#inventory.keys(),
      ...(settleMs === undefined ? {} : { settleMs }),
    });
    this.#server = new WeightsServer({
      store: this.store,
      access: this.#access,
      uploads: this.uploads,
      expects: () => this.status().some(({ state }) => state === 'listing' || state === 'pulling'),
      coordinate: (session, questions, providerOnly) => this.#coordination.answer(session, questions, providerOnly),
      held: () => this.held(),
      ...(stallMs === undefined ? {} : { stallMs }),
      log,
    });
  }

  /** @throws Error if the directory cannot be created */
  async open(): Promise<void> {
    await this.store.open();
    await this.#refresh();
    this.#coordination.open();
  }

  /**
   * Takes over an authenticated connection of another node.
   * @param admits true while that node's session has not ended
   */
  serve(socket: Duplex, peer: PeerName, admits: () => boolean): void {
    this.#server.take(socket, peer, admits);
  }

  /** Running and finished pulls in the order of their start. */
  status(): PullStatus[] {
    return this.#pulls.statuses();
  }

  /**
   * Pulls the models of a source completely to this node's disk.
   * @param keep true: not evicted until `release`, or while this process lives
   * @param reader reads the source; default: as its kind demands
   * @throws WeightsError
   */
  pull(text: string, keep = false, reader?: BlobSource): Promise<PullResult> {
    const source = sourceText(readSource(text));
    if (keep) this.#keep.add(source);
    const pulling = this.#pulls.run(source, (status) =>
      retryWithNewListing(this.#options.log, (relist) => this.#pull(source, status, relist, reader)).catch(
        (error: unknown) => {
          this.#keep.delete(source);
          throw error;
        },
      ),
    );
    if (!keep) return pulling;
    // If this call joined a pull that had started without `keep`, the model may not have been marked as in use. Then
    // pull again.
    return pulling.then((pulled) => (this.#inUse.has(source) ? pulled : this.pull(text, true, reader)));
  }

  /** Allows the eviction of a source that was pulled with `keep`. */
  async release(text: string): Promise<void> {
    const source = sourceText(readSource(text));
    this.#keep.delete(source);
    this.#inUse.delete(source);
    await this.store.manifests.unpin(contentDigest(source));
  }

  async #pull(text: string, status: PullStatus, relist: boolean, given?: BlobSource): Promise<PullResult> {
    const { env, log, limits = PULL_LIMITS, now = Date.now, openSource: opened = openSource } = this.#options;
    const source = readSource(text);
    const reader = given ?? opened(source, env);
    const id = contentDigest(text);
    const { signal } = this.#stop;
    const manifest = await pullManifest(
      {
        id,
        key: this.#inventory.manifestKey(text),
        olderKey: this.#inventory.olderManifestKey(text),
        source,
        reader,
        store: this.store,
        client: this.#client,
        coordination: this.#coordination,
        limits,
        relist,
        now,
        log,
      },
      signal,
    );
    if (relist) await this.#removeOlder(id, text);
    status.bytes = 0;
    await this.#refresh();
    neverRejects(this.#coordination.announce('holds', [this.#inventory.manifestKey(text)]));
    status.total = manifestBytes(manifest);
    status.state = 'pulling';
    await this.store.room.forModel(id, manifest, signal);
    try {
      for (const file of blobsOf(manifest)) await this.#pullBlob(manifest, file, reader, status, signal);
      status.path = await this.store.link(id, manifest);
      if (this.#keep.has(text)) this.#inUse.add(text);
    } finally {
      if (!this.#inUse.has(text)) await this.store.manifests.unpin(id);
    }
    await this.#removeOlder(id, text);
    status.state = 'done';
    return { path: status.path, manifest, status: { ...status } };
  }

  /** Removes revisions of the source that no engine of this machine uses. */
  async #removeOlder(id: string, source: string): Promise<void> {
    for (const kept of await this.store.manifests.all())
      if (kept.manifest.source === source && kept.id !== id && !kept.pinned)
        await this.#removeKept(kept).catch((error: unknown) =>
          this.#options.log(`weights: an older revision could not be deleted: ${asWeightsError(error).message}`),
        );
  }

  async #removeKept(kept: StoredManifest): Promise<void> {
    const keys = blobsOf(kept.manifest).map((file) => this.#inventory.blobKey(kept.manifest, file));
    await this.store.room.remove(kept, this.#stop.signal);
    const stays = new Set(await this.#inventory.keys());
    const { source } = kept.manifest;
    keys.push(this.#inventory.manifestKey(source), this.#inventory.olderManifestKey(source));
    const dropped = keys.filter((key) => !stays.has(key));
    neverRejects(this.#coordination.announce('drops', dropped));
  }

  /**
   * Pulls an environment for engines or functions, as `pull` with `keep` does, and unpacks it.
   * @throws WeightsError
   */
  async environment(text: string, reader?: BlobSource): Promise<Environment & { status: PullStatus }> {
    const wasUsed = this.#inUse.has(sourceText(readSource(text)));
    const pulled = await this.pull(text, true, reader);
    try {
      return await this.#unpack(text, pulled);
    } catch (error) {
      // Pinned archives that cannot be unpacked would fill the store.
      if (!wasUsed) await this.release(text);
      throw error;
    }
  }

  async #unpack(text: string, { path, manifest }: PullResult): Promise<Environment & { status: PullStatus }> {
    const parsed = readSource(text);
    const source = sourceText(parsed);
    const [file] = manifest.files;
    if (file === undefined || manifest.files.length > 1)
      throw new WeightsError(
        'wrong',
        `${source} contains ${manifest.files.length} files; an environment must be one file`,
      );
    const { signal } = this.#stop;
    return this.#pulls.after(source, 'unpacking', async (status) => {
      const environment = await this.store.environments.ready({
        key: file.key,
        file: join(path, file.path),
        isTrusted: parsed.kind !== 'packages',
        env: this.#options.env,
        room: (bytes, noted, note) =>
          this.store.room.forEnvironment(contentDigest(source), { source, bytes, noted, note }, signal),
        signal,
      });
      return { ...environment, status: { ...status, state: 'done', path: environment.path } };
    });
  }

  async #pullBlob(
    manifest: WeightsManifest,
    file: ManifestFile,
    source: BlobSource,
    status: PullStatus,
    signal: AbortSignal,
  ): Promise<void> {
    const before = status.bytes;
    const key = this.#inventory.blobKey(manifest, file);
    const providerOnly = !(manifest.public && file.exact);
    if (!(await this.store.has(file))) {
      let growing: Blob | undefined;
      await new BlobPull({
        file,
        revision: manifest.revision,
        source,
        store: this.store,
        hasher: this.#hasher,
        client: this.#client,
        blocklist: this.#coordination.senders,
        limits: this.#options.limits ?? PULL_LIMITS,
        ask: (question) => this.#coordination.ask({ ...question, blob: key }, providerOnly),
        onWaitTimeout: () => this.#coordination.onWaitTimeout(key, providerOnly),
        alone: () => this.#coordination.alone,
        onBlob: (blob) => {
          growing = blob;
          status.bytes = before + blob.bytes;
        },
        onBytes: (bytes, from) => {
          if (from === 'source') status.from_source += bytes;
          else status.from_peers += bytes;
          status.bytes = before + (growing?.bytes ?? 0);
        },
        log: this.#options.log,
      }).run(signal);
      await this.#coordination.announce('holds', [key]);
    }
    status.bytes = before + file.size;
  }

  async #refresh(): Promise<void> {
    this.#access.setManifests(await this.store.manifests.all());
  }

  /** Returns the models on this node. */
  held(): Promise<ModelHolding[]> {
    return this.#inventory.held();
  }

  /** Models on other nodes of the provider, by session. `held` is undefined if a node did not answer. */
  async heldElsewhere(): Promise<{ session: string; held: ModelHolding[] | undefined }[]> {
    const { peers } = this.#options;
    const sameProvider = peers.others().filter((peer) => this.#access.isSameProvider(peer));
    return Promise.all(
      sameProvider.map(async ({ session }) => ({
        session,
        held: await this.#client.held(session, this.#stop.signal).catch(() => undefined),
      })),
    );
  }

  /**
   * Deletes what no engine of this machine uses: the model of a source, or unreferenced blobs.
   * @throws WeightsError if it is in use
   */
  async remove(text: string | undefined): Promise<number> {
    const before = await this.store.used();
    if (text !== undefined) {
      const source = sourceText(readSource(text));
      const all = (await this.store.manifests.all()).filter(({ manifest }) => manifest.source === source);
      if (all.length === 0) throw new WeightsError('wrong', `${text} is not stored here`);
      if (all.every(({ pinned }) => pinned)) throw new WeightsError('refused', `${text} is in use`);
      for (const kept of all) if (!kept.pinned) await this.#removeKept(kept);
    }
    await this.store.room.collect(this.#stop.signal);
    await this.#refresh();
    return before - (await this.store.used());
  }

  /** For tests, which send requests like a faulty node. */
  get parts(): { client: WeightsClient; coordination: CoordinatorClient } {
    return { client: this.#client, coordination: this.#coordination };
  }

  /** Idempotent. */
  async close(): Promise<void> {
    this.#stop.abort();
    this.#coordination.close();
    this.#client.close();
    this.#server.close();
    await this.#hasher.close();
    await this.store.close();
  }
}
