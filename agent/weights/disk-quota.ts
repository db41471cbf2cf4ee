/**
 * The disk quota of weights and environments: counts what is stored and what is being written, and evicts if more space
 * is needed.
 */
import { statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { chooseEvictions, type StoredModel } from '../../shared/weights/choose-evictions.ts';
import {
  blobsOf,
  type ManifestFile,
  manifestBytes,
  type WeightsManifest,
} from '../../shared/weights/weights-manifest.ts';
import type { UnpackedEnvironments } from './environment/unpacked-environments.ts';
import { type LockOptions, takeLock } from './lock-file.ts';
import type { StoredManifest, StoredManifests } from './stored-manifests.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';

const NEVER = async () => false;
/**
 * Disk blocks that each blob needs in addition to its content: for its lock, its digests, its link, and a growing
 * directory.
 */
const RECORD_BLOCKS = 4;

/** The directory that a quota bounds. */
interface QuotaStore {
  readonly options: { readonly directory: string; readonly limitBytes: number; log(line: string): void };
  readonly manifests: Pick<StoredManifests, 'all' | 'get' | 'pin' | 'save' | 'unpin'>;
  readonly environments: Pick<UnpackedEnvironments, 'bytesOf'>;
  readonly locking: LockOptions;
  readonly inside: string;
  /** Bytes that all blobs and environments use on disk. */
  used(): Promise<number>;
  bytesHere(file: Pick<ManifestFile, 'key' | 'size'>): Promise<number>;
  remove(model: Pick<StoredManifest, 'id' | 'manifest'>): Promise<void>;
  /** Removes files that no manifest names. Resolves with the number of bytes that this freed. */
  collect(): Promise<number>;
}

export class DiskQuota {
  readonly #store: QuotaStore;

  constructor(store: QuotaStore) {
    this.#store = store;
  }

  /**
   * Pins the model and reserves space for its missing blobs, in addition to the space that concurrent pulls have
   * reserved.
   * @throws WeightsError `full`, `stopped`
   */
  async forModel(id: string, manifest: WeightsManifest, signal: AbortSignal): Promise<void> {
    await this.#locked(
      signal,
      async () => {
        const { manifests } = this.#store;
        const wasPinned = (await manifests.get(id))?.pinned === true;
        await this.recorded(id, () => manifests.pin(id));
        try {
          // The model may have been evicted before it was pinned. Without its manifest no eviction would find its
          // blobs.
          if ((await manifests.get(id)) === undefined) await this.recorded(id, () => manifests.save(id, manifest, 0));
          await this.#make(id, manifest.source, await this.#missing(manifest), blobsOf(manifest).length);
        } catch (error) {
          if (!wasPinned) await manifests.unpin(id);
          throw error;
        }
      },
      id,
    );
  }

  /**
   * Reserves space for an environment that is being unpacked: `bytes` in total, of which `noted` are reserved already.
   * Then calls `note`, which stores the new total.
   * @throws WeightsError `full`, `stopped`
   */
  async forEnvironment(
    id: string,
    { source, bytes, noted, note }: { source: string; bytes: number; noted: number; note(): Promise<void> },
    signal: AbortSignal,
  ): Promise<void> {
    await this.#locked(
      signal,
      async () => {
        await this.#make(id, source, bytes - noted, 1);
        await this.recorded(id, note);
      },
      id,
    );
  }

  /** Deletes a model. @throws WeightsError `refused` if it is now in use or a manifest cannot be read; `stopped` */
  async remove(kept: StoredManifest, signal: AbortSignal): Promise<void> {
    const act = async () => {
      if ((await this.#store.manifests.get(kept.id))?.pinned === true)
        throw new WeightsError('refused', `${kept.manifest.source} is in use`);
      await this.#store.remove(kept);
    };
    await this.#locked(signal, act);
  }

  /**
   * Deletes files that belong to no model. Returns the number of bytes that this freed.
   * @throws WeightsError `refused` if a manifest cannot be read; `stopped`
   */
  collect(signal: AbortSignal): Promise<number> {
    return this.#locked(signal, () => this.#store.collect());
  }

  /**
   * Runs `write`, which writes a small file of the model `id`. If the disk is full, evicts other models and tries
   * again. An eviction itself needs no space on the disk.
   * @throws WeightsError `full`
   */
  async recorded<T>(id: string, write: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await write();
      } catch (error) {
        if (asWeightsError(error).code !== 'full' || !(await this.#evictOldest(id))) throw error;
      }
    }
  }

  /** Evicts the least recently used model other than `id`. False if all others are in use. */
  async #evictOldest(id: string): Promise<boolean> {
    const free = (await this.#store.manifests.all()).filter((one) => one.id !== id && !one.pinned);
    const [oldest] = free.sort((a, b) => a.usedAt - b.usedAt);
    if (oldest === undefined) return false;
    await this.#evict(oldest);
    return true;
  }

  async #evict(kept: StoredManifest): Promise<void> {
    await this.#store.remove(kept);
    this.#store.options.log(`weights: evicted ${kept.manifest.source}, the least recently used`);
  }

  /**
   * Runs `act` in only one process at a time. Two concurrent processes would both count the same free bytes, and one
   * would delete what the other starts to use.
   */
  async #locked<T>(signal: AbortSignal, act: () => Promise<T>, forId?: string): Promise<T> {
    const path = join(this.#store.inside, 'room.lock');
    const lock = () => takeLock(path, NEVER, signal, this.#store.locking);
    const free = await (forId === undefined ? lock() : this.recorded(forId, lock)).catch((error: unknown) => {
      // Continue without the lock: on a full disk no lock can be written, and nothing could ever be deleted.
      if (forId !== undefined || asWeightsError(error).code !== 'full') throw error;
      return undefined;
    });
    try {
      return await act();
    } finally {
      await free?.();
    }
  }

  /**
   * Evicts other models until `needed` bytes fit.
   * @param blobs number of blobs for whose small files space is reserved, too. Without this reserve, a pull that fills
   * the disk exactly would always fail.
   * @throws WeightsError `full`
   */
  async #make(id: string, source: string, needed: number, blobs: number): Promise<void> {
    const { limitBytes, directory } = this.#store.options;
    for (;;) {
      const others = (await this.#store.manifests.all()).filter((one) => one.id !== id);
      const { bavail, bsize } = await statfs(directory);
      const free = Math.max(0, bavail - blobs * RECORD_BLOCKS) * bsize;
      const used = await this.#store.used();
      const limit = Math.min(limitBytes, used + free);
      const due = await this.#due(others);
      if (used + due + needed <= limit) return;
      // Models may share blobs. So delete one model at a time, and count the space again after each.
      const rows = await Promise.all(others.map((one) => this.#row(one)));
      const [first] = chooseEvictions(rows, used + due, limit, needed) ?? [];
      const gone = others.find((one) => one.id === first);
      if (gone === undefined) {
        const left = Math.max(0, limit - used - due);
        const coming = due === 0 ? '' : `, ${due} still arriving`;
        throw new WeightsError(
          'full',
          `${source} needs ${needed} more bytes, but ${directory} has only ${left} (limit ${limitBytes}, ${free} free on the disk${coming})`,
        );
      }
      await this.#evict(gone);
    }
  }

  async #row({ id, manifest, usedAt, pinned }: StoredManifest): Promise<StoredModel> {
    let bytes = manifestBytes(manifest);
    for (const { key } of blobsOf(manifest)) bytes += await this.#store.environments.bytesOf(key);
    return { id, bytes, usedAt, pinned };
  }

  /** Bytes that running pulls will still write. */
  async #due(others: readonly StoredManifest[]): Promise<number> {
    const coming = new Map<string, number>();
    for (const { manifest, pinned } of others)
      if (pinned)
        for (const blob of blobsOf(manifest)) coming.set(blob.key, blob.size - (await this.#store.bytesHere(blob)));
    return [...coming.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  async #missing(manifest: WeightsManifest): Promise<number> {
    let bytes = 0;
    for (const blob of blobsOf(manifest)) bytes += blob.size - (await this.#store.bytesHere(blob));
    return bytes;
  }
}
