/**
 * A directory of weights: a Hugging Face cache (`models--org--name/{blobs,refs,snapshots}`) whose blobs are hard links of those below
 * `.otela/`, where each is once, however many models have it. Bounded: the models that were not used for longest go first.
 */
import { mkdir, readdir, readFile, rename, rm, stat, statfs, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import * as z from 'zod';
import { evictionFor, type Kept } from '../../shared/weights/eviction.ts';
import { blobsOf, type Manifest, type ManifestFile, manifestSchema, sizeOf } from '../../shared/weights/manifest.ts';
import { cacheFolder, parseSource, type Source } from '../../shared/weights/source.ts';
import { Blob, type BlobPlace } from './blob.ts';
import { asWeightsError, WeightsError } from './error.ts';
import type { Hasher } from './hasher.ts';
import { linkSnapshot, unlinkSnapshot } from './hub-cache.ts';
import { holderLives, takeLock } from './lock-file.ts';

export interface StoreOptions {
  directory: string;
  /** Bytes that blobs may take together. */
  limitBytes: number;
  pieceBytes: number;
  hasher: Hasher;
  log(line: string): void;
}

/** A manifest as it is kept: what was asked for under which name, and when. */
const keptSchema = z.object({ manifest: manifestSchema, readAt: z.number() });

export interface KeptManifest {
  id: string;
  manifest: Manifest;
  /** Milliseconds since 1970: when the source was asked for its list. */
  readAt: number;
  usedAt: number;
  pinned: boolean;
}

export class Store {
  readonly options: StoreOptions;
  /** Blobs that are open now, by key: those on their way and those that are sent. */
  readonly #open = new Map<string, Promise<Blob>>();
  /** By blob: the uploads that wait until it is begun here. */
  readonly #awaited = new Map<string, Set<() => void>>();
  /** Sources of manifests that have been linked, or are being pulled, by this process. */
  readonly #pins = new Set<string>();

  constructor(options: StoreOptions) {
    this.options = options;
  }

  get directory(): string {
    return this.options.directory;
  }

  /** @throws Error: the directory cannot be made */
  async open(): Promise<void> {
    for (const part of ['blobs', 'manifests', 'pins'])
      await mkdir(this.#inside(part), { recursive: true, mode: 0o700 });
  }

  #inside(...parts: string[]): string {
    return join(this.options.directory, '.otela', ...parts);
  }

  placeOf(key: string): BlobPlace {
    const path = this.#inside('blobs', key);
    return { path, partPath: `${path}.part`, digestsPath: `${path}.digests` };
  }

  async has({ key, size }: Pick<ManifestFile, 'key' | 'size'>): Promise<boolean> {
    const found = await stat(this.placeOf(key).path).catch(() => undefined);
    return found?.size === size;
  }

  /** The blob as far as it is here, for sending; undefined where nothing of it is. Close it. */
  async read({ key, size }: Pick<ManifestFile, 'key' | 'size'>): Promise<Blob | undefined> {
    const open = this.#open.get(key);
    if (open !== undefined) return (await open.catch(() => undefined))?.use();
    if (!(await this.has({ key, size }))) return undefined;
    return this.#keepOpen(key, Blob.whole(key, { size, pieceBytes: this.options.pieceBytes }, this.placeOf(key)));
  }

  /** `read`, after waiting for up to `ms` where nothing of it is here yet. */
  async readSoon(file: Pick<ManifestFile, 'key' | 'size'>, ms: number): Promise<Blob | undefined> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiting = this.#awaited.get(file.key) ?? new Set();
    this.#awaited.set(file.key, waiting.add(resolve));
    const timer = setTimeout(resolve, ms);
    try {
      const found = await this.read(file);
      if (found !== undefined) return found;
      await promise;
      return await this.read(file);
    } finally {
      clearTimeout(timer);
      waiting.delete(resolve);
      if (waiting.size === 0) this.#awaited.delete(file.key);
    }
  }

  /** The blob, to be filled by the caller, who closes it; undefined where another process has completed it meanwhile. */
  async fill(
    { key, size }: Pick<ManifestFile, 'key' | 'size'>,
    whole: number,
    signal: AbortSignal,
  ): Promise<{ blob: Blob; done(): Promise<void> } | undefined> {
    const unlock = await takeLock(this.#inside('blobs', `${key}.lock`), () => this.has({ key, size }), signal);
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

  /** @throws WeightsError */
  async saveManifest(id: string, manifest: Manifest, readAt: number): Promise<void> {
    const path = this.#inside('manifests', `${id}.json`);
    try {
      await writeFile(`${path}.${process.pid}`, JSON.stringify({ manifest, readAt }), { mode: 0o600 });
      await rename(`${path}.${process.pid}`, path);
    } catch (error) {
      throw asWeightsError(error);
    }
  }

  async manifest(id: string): Promise<KeptManifest | undefined> {
    const path = this.#inside('manifests', `${id}.json`);
    try {
      const read = keptSchema.parse(JSON.parse(await readFile(path, 'utf8')));
      const { mtimeMs } = await stat(path);
      return { id, ...read, usedAt: mtimeMs, pinned: await this.#isPinned(id) };
    } catch {
      return undefined;
    }
  }

  /** Of whole and of begun models. */
  async manifests(): Promise<KeptManifest[]> {
    const names = await readdir(this.#inside('manifests')).catch(() => []);
    const ids = names.filter((name) => name.endsWith('.json')).map((name) => name.slice(0, -'.json'.length));
    return (await Promise.all(ids.map((id) => this.manifest(id)))).filter((one) => one !== undefined);
  }

  /** An engine of this process runs from it, or it is being pulled: it is not evicted while this process lives. */
  async pin(id: string): Promise<void> {
    this.#pins.add(id);
    await mkdir(this.#inside('pins', id), { recursive: true, mode: 0o700 });
    await writeFile(this.#inside('pins', id, String(process.pid)), `${process.pid} ${hostname()}\n`, { mode: 0o600 });
  }

  async unpin(id: string): Promise<void> {
    this.#pins.delete(id);
    await rm(this.#inside('pins', id, String(process.pid)), { force: true });
  }

  async #isPinned(id: string): Promise<boolean> {
    if (this.#pins.has(id)) return true;
    const names = await readdir(this.#inside('pins', id)).catch(() => []);
    for (const name of names) {
      const path = this.#inside('pins', id, name);
      if (await holderLives(path)) return true;
      await rm(path, { force: true });
    }
    return false;
  }

  /** The snapshot as engines find it. All blobs are here. Returns its path. @throws WeightsError */
  async link(id: string, manifest: Manifest): Promise<string> {
    const source = parseSource(manifest.source);
    if (source === undefined) throw new WeightsError('wrong', `"${manifest.source}" is not a source`);
    const folder = join(this.options.directory, cacheFolder(source));
    const revision = revisionOf(source);
    const now = new Date();
    await utimes(this.#inside('manifests', `${id}.json`), now, now).catch(() => {});
    return linkSnapshot({ folder, revision, manifest, blobPath: (key) => this.placeOf(key).path });
  }

  /** Room for what of `manifest` is not here, with models evicted where need be. @throws WeightsError full */
  async makeRoom(id: string, manifest: Manifest): Promise<void> {
    let needed = 0;
    for (const blob of blobsOf(manifest))
      if (!(await this.has(blob))) needed += blob.size - (await this.#begun(blob.key));
    for (;;) {
      const kept = (await this.manifests()).filter((one) => one.id !== id);
      const free = await this.#free();
      const used = await this.used();
      const limit = Math.min(this.options.limitBytes, used + free);
      if (used + needed <= limit) return;
      const rows = kept.map(
        (one): Kept => ({ id: one.id, bytes: sizeOf(one.manifest), usedAt: one.usedAt, pinned: one.pinned }),
      );
      // Models may share blobs: one at a time, and then it is counted again.
      const [first] = evictionFor(rows, used, limit, needed) ?? [];
      const gone = kept.find((one) => one.id === first);
      if (gone === undefined)
        throw new WeightsError(
          'full',
          `${manifest.source} needs ${needed} bytes more; ${this.options.directory} has room for ${Math.max(0, limit - used)} (limit ${this.options.limitBytes}, ${free} free on the disk)`,
        );
      this.options.log(`weights: evicting ${gone.manifest.source}, which was not used for longest`);
      await this.remove(gone);
    }
  }

  /** As much as is verified, or nearly. */
  async bytesHere(file: Pick<ManifestFile, 'key' | 'size'>): Promise<number> {
    return (await this.has(file)) ? file.size : this.#begun(file.key);
  }

  async #begun(key: string): Promise<number> {
    return (await stat(this.placeOf(key).partPath).catch(() => undefined))?.size ?? 0;
  }

  async #free(): Promise<number> {
    const { bavail, bsize } = await statfs(this.options.directory);
    return bavail * bsize;
  }

  /** Bytes of all blobs, whole or not. */
  async used(): Promise<number> {
    const names = await readdir(this.#inside('blobs')).catch(() => []);
    let bytes = 0;
    for (const name of names) bytes += (await stat(this.#inside('blobs', name)).catch(() => undefined))?.size ?? 0;
    return bytes;
  }

  /** A model, and its blobs that no other has. */
  async remove({ id, manifest }: Pick<KeptManifest, 'id' | 'manifest'>): Promise<void> {
    const source = parseSource(manifest.source);
    await rm(this.#inside('manifests', `${id}.json`), { force: true });
    const rest = await this.manifests();
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
  }

  async #removeBlob(key: string): Promise<void> {
    const { path, partPath, digestsPath } = this.placeOf(key);
    await Promise.all([path, partPath, digestsPath].map((one) => rm(one, { force: true })));
  }

  /** Blobs that no manifest names. Returns how many bytes they had. */
  async collect(): Promise<number> {
    const named = new Set((await this.manifests()).flatMap((one) => one.manifest.files.map(({ key }) => key)));
    const before = await this.used();
    for (const name of await readdir(this.#inside('blobs')).catch(() => [])) {
      const [key = ''] = name.split('.');
      const locked = await holderLives(this.#inside('blobs', `${key}.lock`));
      if (!named.has(key) && !locked && !this.#open.has(key)) await rm(this.#inside('blobs', name), { force: true });
    }
    return before - (await this.used());
  }
}

/** As engines ask for it. */
function revisionOf(source: Source): string {
  return source.kind === 'hub' ? source.revision : 'main';
}
