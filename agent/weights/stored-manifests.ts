/**
 * Manifests on this node's disk (`manifests/<id>.json`), and marks of the processes that use their models
 * (`pins/<id>/<name>`).
 */
import { randomUUID } from 'node:crypto';
import { cp, mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { type WeightsManifest, weightsManifestSchema } from '../../shared/weights/weights-manifest.ts';
import { parseSource } from '../../shared/weights/weights-source.ts';
import type { LiveProcesses } from './live-processes.ts';
import { isHolderAlive } from './lock-file.ts';
import { contentDigest } from './sources/source-listing.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';

/** Time after which a stored manifest is read again, unless its revision is a commit, which never changes. */
const FRESH_MS = 10 * 60_000;

/**
 * True if the manifest need not be read again: it is of a commit of the hub, of packages, or younger than FRESH_MS. A
 * negative age shows that the clock was set back, so it does not count as young.
 */
export function isFresh({ manifest, readAt }: Pick<StoredManifest, 'manifest' | 'readAt'>, now: number): boolean {
  const source = parseSource(manifest.source);
  const age = now - readAt;
  const isFixed = source?.kind === 'packages' || (source?.kind === 'hub' && /^[0-9a-f]{40}$/.test(source.revision));
  return isFixed || (age >= 0 && age < FRESH_MS);
}

/** A stored manifest, and when it was read. */
const keptSchema = z.object({ manifest: weightsManifestSchema, readAt: z.number() });

export interface StoredManifest {
  id: string;
  manifest: WeightsManifest;
  /** When the source was listed, in milliseconds since 1970. */
  readAt: number;
  usedAt: number;
  pinned: boolean;
}

export class StoredManifests {
  readonly #directory: string;
  /** Ids of models that this process uses or pulls. */
  readonly #pins = new Set<string>();
  /** The file name of this process's pins. It is random, because processes in two containers may have the same id. */
  readonly #name = randomUUID();
  readonly #presence: LiveProcesses;
  #text: Promise<string> | undefined;
  /** Manifests that were read and checked, by id. At most one for each file. */
  readonly #checked = new Map<string, { stamp: string; read: z.infer<typeof keptSchema> }>();

  constructor(directory: string, presence: LiveProcesses) {
    this.#directory = directory;
    this.#presence = presence;
  }

  /** @throws Error if the directory cannot be created */
  async open(): Promise<void> {
    for (const part of ['manifests', 'pins'])
      await mkdir(join(this.#directory, part), { recursive: true, mode: 0o700 });
  }

  #path(id: string): string {
    return join(this.#directory, 'manifests', `${id}.json`);
  }

  /**
   * Stores a manifest. An existing manifest with other files is kept under a new id, because an engine may use those
   * files.
   * @throws WeightsError
   */
  async save(id: string, manifest: WeightsManifest, readAt: number): Promise<void> {
    const path = this.#path(id);
    const before = await this.get(id);
    const written = `${path}.${randomUUID()}`; // A random name, because process ids are the same in each container.
    try {
      await writeFile(written, JSON.stringify({ manifest, readAt }), { mode: 0o600 });
      if (before !== undefined && hasOthers(before.manifest, manifest)) await this.#retire(before);
      await rename(written, path);
    } catch (error) {
      await rm(written, { force: true }).catch(() => {});
      throw asWeightsError(error);
    }
  }

  async #retire({ id, manifest }: StoredManifest): Promise<void> {
    const retired = contentDigest(`${id} ${manifest.revision} ${manifest.files.length}`);
    const pins = join(this.#directory, 'pins');
    // The copy fails if nothing uses the model, because then there are no pins.
    await cp(join(pins, id), join(pins, retired), { recursive: true }).catch(() => {});
    await rename(this.#path(id), this.#path(retired));
  }

  /** Undefined if there is no manifest, or if its file cannot be read. */
  get(id: string): Promise<StoredManifest | undefined> {
    return this.#load(id).catch(() => undefined);
  }

  async #load(id: string): Promise<StoredManifest> {
    const { mtimeMs, ino, size } = await stat(this.#path(id));
    const read = await this.#read(id, `${mtimeMs} ${ino} ${size}`);
    return { id, ...read, usedAt: mtimeMs, pinned: await this.#isPinned(id) };
  }

  /** Cached, because all manifests are requested every few seconds, and thousands of files take long to check. */
  async #read(id: string, stamp: string): Promise<z.infer<typeof keptSchema>> {
    const before = this.#checked.get(id);
    if (before?.stamp === stamp) return before.read;
    const read = keptSchema.parse(JSON.parse(await readFile(this.#path(id), 'utf8')));
    this.#checked.set(id, { stamp, read });
    return read;
  }

  /** Readable manifests of complete and incomplete models. */
  async all(): Promise<StoredManifest[]> {
    const ids = await this.#ids().catch((): string[] => []);
    for (const id of this.#checked.keys()) if (!ids.includes(id)) this.#checked.delete(id);
    return (await Promise.all(ids.map((id) => this.get(id)))).filter((one) => one !== undefined);
  }

  /**
   * Returns all manifests. Call it before blobs are deleted.
   * @throws WeightsError `refused` if a manifest cannot be read, for example one of another version: it may refer to
   *   any blob
   */
  async every(): Promise<StoredManifest[]> {
    const load = (id: string) =>
      this.#load(id).catch((cause: unknown) => {
        if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return [];
        const message = `${this.#path(id)} cannot be read: no weights are deleted while this file exists`;
        throw new WeightsError('refused', message, { cause });
      });
    return (await Promise.all((await this.#ids()).map(load))).flat();
  }

  async #ids(): Promise<string[]> {
    const names = await readdir(join(this.#directory, 'manifests'));
    return names.filter((name) => name.endsWith('.json')).map((name) => name.slice(0, -'.json'.length));
  }

  async remove(id: string): Promise<void> {
    await rm(this.#path(id), { force: true });
  }

  async used(id: string): Promise<void> {
    const now = new Date();
    await utimes(this.#path(id), now, now).catch(() => {});
  }

  /**
   * Marks a model as in use: an engine of this process uses it, or it is being pulled. It is not evicted while this
   * process lives.
   * @throws WeightsError `full`
   */
  async pin(id: string): Promise<void> {
    const folder = join(this.#directory, 'pins', id);
    const written = join(this.#directory, 'pins', `.${randomUUID()}`);
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      this.#text ??= this.#presence.hold();
      const text = await this.#text.catch((error: unknown) => {
        this.#text = undefined;
        throw error;
      });
      // The file must be complete as soon as it exists, because an empty file would count as a dead process's pin.
      await writeFile(written, text, { mode: 0o600 });
      await rename(written, join(folder, this.#name));
    } catch (error) {
      await rm(written, { force: true }).catch(() => {});
      throw asWeightsError(error);
    }
    this.#pins.add(id);
  }

  async unpin(id: string): Promise<void> {
    this.#pins.delete(id);
    await rm(join(this.#directory, 'pins', id, this.#name), { force: true });
  }

  async #isPinned(id: string): Promise<boolean> {
    if (this.#pins.has(id)) return true;
    const folder = join(this.#directory, 'pins', id);
    for (const name of await readdir(folder).catch(() => [])) {
      if (await isHolderAlive(join(folder, name), this.#presence)) return true;
      await rm(join(folder, name), { force: true });
    }
    return false;
  }
}

function hasOthers(before: WeightsManifest, { revision, files }: WeightsManifest): boolean {
  const paths = new Set(files.map(({ path }) => path));
  return before.revision !== revision || before.files.some(({ path }) => !paths.has(path));
}
