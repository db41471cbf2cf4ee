/**
 * A directory of weights: a Hugging Face cache (`models--org--name/{blobs,refs,snapshots}`). Its blobs are hard links
 * to files below `.otela/`, where each blob exists once, even if several models use it. Bounded: the least recently
 * used models are evicted first.
 */
import { lstat, mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pieceCount } from '../../shared/weights/blob-pieces.ts';
import { blobsOf, type ManifestFile, type WeightsManifest } from '../../shared/weights/weights-manifest.ts';
import { cacheFolder, parseSource, type Source } from '../../shared/weights/weights-source.ts';
import { BLOB_DIGEST_BYTES, Blob, type BlobLocation } from './blob.ts';
import { DiskQuota } from './disk-quota.ts';
import { UnpackedEnvironments } from './environment/unpacked-environments.ts';
import { linkSnapshot, unlinkSnapshot } from './hub-cache.ts';
import { LiveProcesses } from './live-processes.ts';
import { isHolderAlive, type LockOptions, takeLock } from './lock-file.ts';
import type { Sha256Thread } from './sha256-thread.ts';
import { type StoredManifest, StoredManifests } from './stored-manifests.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';

/**
 * User ids of root. Root owns the host's mount points. In a user namespace without a mapping for root, root's files
 * belong to user 65534.
 */
const ROOT_UIDS = [0, 65_534];

/** Maximum wait, when the store opens, for another agent that holds the lock of this directory. */
const COLLECT_WITHIN_MS = 5_000;

interface StoreOptions {
  directory: string;
  /** Disk quota of all blobs and unpacked environments, in bytes. */
  limitBytes: number;
  pieceBytes: number;
  hasher: Sha256Thread;
  log(line: string): void;
}

export class Store {
  readonly options: StoreOptions;
  /** Open blobs by key: those being received, and those being sent. */
  readonly #open = new Map<string, Promise<Blob>>();
  /** Callbacks of uploads that wait for the first bytes of a blob, by the blob's key. */
  readonly #awaited = new Map<string, Set<() => void>>();
  readonly manifests: StoredManifests;
  readonly environments: UnpackedEnvironments;
  readonly room: DiskQuota;
  readonly locking: LockOptions;

  constructor(options: StoreOptions) {
    this.options = options;
    const presence = new LiveProcesses(this.#inside('alive'));
    this.locking = { presence, log: options.log };
    this.manifests = new StoredManifests(this.inside, presence);
    this.environments = new UnpackedEnvironments(this.#inside('environments'), this.locking);
    this.room = new DiskQuota(this);
  }

  get directory(): string {
    return this.options.directory;
  }

  /** @throws Error if the directory cannot be created, or belongs to another user */
  async open(): Promise<void> {
    await mkdir(this.inside, { recursive: true, mode: 0o700 });
    // Below /tmp the directory's name can be guessed. A user who created it first could change what engines run.
    await requireOwn(this.directory, [process.getuid?.(), ...ROOT_UIDS]);
    await requireOwn(this.inside, [process.getuid?.()]);
    await mkdir(this.#inside('blobs'), { recursive: true, mode: 0o700 });
    await this.manifests.open();
    await this.environments.open();
    // Delete blobs that a killed process left in the middle of an eviction. No manifest names them, so no eviction
    // would find them.
    const { log } = this.options;
    const freed = await this.room.collect(AbortSignal.timeout(COLLECT_WITHIN_MS)).catch((error: unknown) => {
      log(`weights: ${asWeightsError(error).message}`);
      return 0;
    });
    if (freed > 0) log(`weights: deleted ${freed} bytes that belong to no model`);
  }

  /** Releases locks and pins, so that other processes may take them over. */
  close(): Promise<void> {
    return this.locking.presence.close();
  }

  /** The agent's part of the directory, which engines do not read. */
  get inside(): string {
    return join(this.options.directory, '.otela');
  }

  #inside(...parts: string[]): string {
    return join(this.inside, ...parts);
  }

  placeOf(key: string): BlobLocation {
    const path = this.#inside('blobs', key);
    return { path, partPath: `${path}.part`, digestsPath: `${path}.digests` };
  }

  async has({ key, size }: Pick<ManifestFile, 'key' | 'size'>): Promise<boolean> {
    const { path, digestsPath } = this.placeOf(key);
    const [found, digests] = await Promise.all([path, digestsPath].map((one) => stat(one).catch(() => undefined)));
    // A blob without its digests cannot be sent to other nodes, so it is fetched again.
    const wanted = pieceCount({ size, pieceBytes: this.options.pieceBytes }) * BLOB_DIGEST_BYTES;
    return found?.size === size && digests !== undefined && digests.size >= wanted;
  }

  /** Opens the existing part of a blob for sending. Undefined if there is none. The caller must close it. */
  async read({ key, size }: Pick<ManifestFile, 'key' | 'size'>): Promise<Blob | undefined> {
    const open = this.#open.get(key);
    if (open !== undefined) return (await open.catch(() => undefined))?.use();
    if (!(await this.has({ key, size }))) return undefined;
    return this.#keepOpen(key, Blob.whole(key, { size, pieceBytes: this.options.pieceBytes }, this.placeOf(key)));
  }

  /** Number of blobs for which uploads wait. */
  get awaited(): number {
    return this.#awaited.size;
  }

  /** Waits up to `ms` until a part of the blob is on disk, or a pull of it has begun here. True if so. */
  async begun(file: Pick<ManifestFile, 'key' | 'size'>, ms: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiting = this.#awaited.get(file.key) ?? new Set();
    this.#awaited.set(file.key, waiting.add(resolve));
    const timer = setTimeout(resolve, ms);
    try {
      const isHere = async () => this.#open.has(file.key) || (await this.has(file));
      if (await isHere()) return true;
      await promise;
      return await isHere();
    } finally {
      clearTimeout(timer);
      waiting.delete(resolve);
      if (waiting.size === 0) this.#awaited.delete(file.key);
    }
  }

  /** Opens the blob to be filled. The caller must close it. Undefined if another process has completed it meanwhile. */
  async fill(
    { key, size }: Pick<ManifestFile, 'key' | 'size'>,
    whole: number,
    signal: AbortSignal,
  ): Promise<{ blob: Blob; done(): Promise<void> } | undefined> {
    const unlock = await takeLock(
      this.#inside('blobs', `${key}.lock`),
      () => this.has({ key, size }),
      signal,
      this.locking,
    );
    if (unlock === undefined) return undefined;
    const { pieceBytes, hasher } = this.options;
    try {
      const place = this.placeOf(key);
      const blob = await this.#keepOpen(key, Blob.partial(key, { size, pieceBytes }, place, { hasher, whole }));
      const done = async () => {
        this.#open.delete(key);
        if (!blob.complete) blob.giveUp();
        await blob.close();
        await unlock();
      };
      return { blob, done };
    } catch (error) {
      this.#open.delete(key);
      await unlock();
      throw asWeightsError(error);
    }
  }

  async #keepOpen(key: string, opening: Promise<Blob>): Promise<Blob> {
    this.#open.set(key, opening);
    for (const resolve of this.#awaited.get(key) ?? []) resolve();
    try {
      const blob = await opening;
      if (blob.complete) this.#open.delete(key);
      return blob;
    } catch (error) {
      this.#open.delete(key);
      throw error;
    }
  }

  /** Creates the snapshot for engines, when all blobs are on disk. Returns its path. @throws WeightsError */
  async link(id: string, manifest: WeightsManifest): Promise<string> {
    const source = parseSource(manifest.source);
    if (source === undefined) throw new WeightsError('wrong', `"${manifest.source}" is not a source`);
    const folder = join(this.options.directory, cacheFolder(source));
    const revision = revisionOf(source);
    await this.manifests.used(id);
    return linkSnapshot({ folder, revision, manifest, blobPath: (key) => this.placeOf(key).path });
  }

  /** Bytes of the blob that are on this disk. Nearly all of them are verified. */
  async bytesHere(file: Pick<ManifestFile, 'key' | 'size'>): Promise<number> {
    return (await this.has(file)) ? file.size : this.#begun(file.key);
  }

  async #begun(key: string): Promise<number> {
    return (await stat(this.placeOf(key).partPath).catch(() => undefined))?.size ?? 0;
  }

  /** Bytes of all blobs, complete or not, and of unpacked environments. */
  async used(): Promise<number> {
    const names = await readdir(this.#inside('blobs')).catch(() => []);
    let bytes = 0;
    for (const name of names) bytes += (await stat(this.#inside('blobs', name)).catch(() => undefined))?.size ?? 0;
    return bytes + (await this.environments.used());
  }

  /**
   * Removes a model, with the blobs and environments that no other model uses. Only the disk quota calls this.
   * @throws WeightsError
   */
  async remove({ id, manifest }: Pick<StoredManifest, 'id' | 'manifest'>): Promise<void> {
    const source = parseSource(manifest.source);
    const rest = (await this.manifests.every()).filter((one) => one.id !== id);
    if (source !== undefined) {
      const beside = rest.flatMap((one) => {
        const other = parseSource(one.manifest.source);
        if (other === undefined || cacheFolder(other) !== cacheFolder(source)) return [];
        return [{ manifest: one.manifest, revision: revisionOf(other) }];
      });
      const folder = join(this.options.directory, cacheFolder(source));
      await unlinkSnapshot(folder, { manifest, revision: revisionOf(source) }, beside);
    }
    const others = new Set(rest.flatMap((one) => one.manifest.files.map(({ key }) => key)));
    for (const { key } of blobsOf(manifest)) if (!others.has(key) && !this.#open.has(key)) await this.#removeBlob(key);
    // Removed last: if the process is killed before this, the next eviction finds the rest through the manifest.
    await this.manifests.remove(id);
  }

  async #removeBlob(key: string): Promise<void> {
    const { path, partPath, digestsPath } = this.placeOf(key);
    await Promise.all([path, partPath, digestsPath].map((one) => rm(one, { force: true })));
    await this.environments.remove(key);
  }

  /**
   * Deletes blobs and environments that no manifest names. Returns the number of bytes that this freed. Only the disk
   * quota calls this.
   * @throws WeightsError
   */
  async collect(): Promise<number> {
    const before = await this.used();
    // List the files before the manifests. Another process saves its manifest before its first file, so every listed
    // file in use has a manifest in the later list.
    const blobs = await readdir(this.#inside('blobs')).catch(() => []);
    const environments = await this.environments.keys();
    const manifests = await this.manifests.every();
    const named = new Set(manifests.flatMap((one) => one.manifest.files.map(({ key }) => key)));
    for (const name of blobs) {
      const [key = ''] = name.split('.');
      const locked = await isHolderAlive(this.#inside('blobs', `${key}.lock`), this.locking.presence);
      if (!named.has(key) && !locked && !this.#open.has(key)) await rm(this.#inside('blobs', name), { force: true });
    }
    for (const key of environments) if (!named.has(key)) await this.environments.remove(key);
    return before - (await this.used());
  }
}

/**
 * Checks the owners of a path and of its link target.
 * @param uids allowed owners; undefined entries: this system has no user ids
 * @throws Error
 */
async function requireOwn(path: string, uids: readonly (number | undefined)[]): Promise<void> {
  for (const { uid } of [await lstat(path), await stat(path)])
    if (!uids.includes(undefined) && !uids.includes(uid))
      throw new Error(`${path} belongs to another user (uid ${uid}): choose another directory`);
}

/** The name of the revision that engines use. */
function revisionOf(source: Source): string {
  return source.kind === 'hub' ? source.revision : 'main';
}
