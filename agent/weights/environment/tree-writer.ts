/**
 * Writes the entries of an archive below one directory. The programs in an archive are trusted like the engine, but its
 * entries cannot write outside the directory. Links are created last, when all files exist, so that no file is written
 * through a link.
 */

import { chmod, link, mkdir, open, readlink, realpath, symlink } from 'node:fs/promises';
import { dirname, join, posix, sep } from 'node:path';
import type { Readable } from 'node:stream';
import type { ReadEntry } from 'tar';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { isSafePath } from '../../../shared/weights/weights-manifest.ts';
import { WeightsError } from '../weights-error.ts';

/**
 * Maximum number of entries. vLLM with PyTorch and CUDA has 60,000 files. Each path is remembered while unpacking, in
 * 200 bytes.
 */
const ENTRIES_MAX = 500_000;
/** Files up to this size are written concurrently: on flash, a small write spends most of its time waiting. */
const SMALL_BYTES = 256 * 1024;
const WRITES_MAX = 16;

export interface WrittenTree {
  /** Bytes of all files together. */
  bytes: number;
  entries: number;
}

interface Link {
  path: string;
  target: string;
}

export class TreeWriter {
  readonly #root: string;
  /** Kind of each path. At most ENTRIES_MAX. */
  readonly #kinds = new Map<string, 'file' | 'directory' | 'link'>();
  readonly #symlinks: Link[] = [];
  readonly #hardLinks: Link[] = [];
  /** Running writes. At most WRITES_MAX. */
  readonly #writes = new Set<Promise<void>>();
  #failure: unknown;
  #bytes = 0;

  constructor(root: string) {
    this.#root = root;
  }

  /**
   * Adds an entry. Reads the body to its end.
   * @throws WeightsError `wrong` for an entry that could write elsewhere, or is not a file, directory or link
   */
  async add(entry: ReadEntry, body: Readable): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    const path = entryPath(entry.path);
    if (path === '') return void body.resume();
    if (!isSafePath(path)) throw refused(entry.path, 'points out of the environment, or is not a valid name');
    // GNU tar's sparse format 1.0: the content of a file with such a name begins with a map. The map would be written
    // as if it were content.
    if (/(^|\/)GNUSparseFile\.\d+\//.test(path))
      throw refused(entry.path, 'is a sparse file: pack it without --sparse');
    const mode = ((entry.mode ?? 0o644) & 0o755) | 0o600;
    switch (entry.type) {
      case 'Directory':
        body.resume();
        return this.#addDirectory(path);
      case 'SymbolicLink':
        body.resume();
        this.#claim(path, 'link');
        await this.#parents(path);
        this.#symlinks.push({ path, target: symlinkTarget(path, entry.linkpath ?? '') });
        return;
      case 'Link':
        body.resume();
        this.#claim(path, 'link');
        await this.#parents(path);
        this.#hardLinks.push({ path, target: this.#hardLinkTarget(path, entry.linkpath ?? '') });
        return;
      case 'File':
      case 'OldFile':
      case 'ContiguousFile':
        this.#claim(path, 'file');
        await this.#parents(path);
        return this.#addFile(path, mode, entry.size, body);
      default:
        throw refused(entry.path, `is a ${entry.type}`);
    }
  }

  #claim(path: string, kind: 'file' | 'link' | 'directory'): void {
    if (this.#kinds.has(path)) throw refused(path, 'occurs twice in the archive');
    if (this.#kinds.size >= ENTRIES_MAX)
      throw new WeightsError('wrong', `the archive has more than ${ENTRIES_MAX} entries`);
    this.#kinds.set(path, kind);
  }

  async #addDirectory(path: string): Promise<void> {
    if (this.#kinds.get(path) === 'directory') return;
    await this.#parents(path);
    this.#claim(path, 'directory');
    await mkdir(join(this.#root, path), { mode: 0o700 });
  }

  async #parents(path: string): Promise<void> {
    const parent = posix.dirname(path);
    if (parent === '.') return;
    const kind = this.#kinds.get(parent);
    if (kind === undefined) return this.#addDirectory(parent);
    if (kind !== 'directory') throw refused(path, `is below ${parent}, which is not a directory`);
  }

  async #addFile(path: string, mode: number, size: number, body: Readable): Promise<void> {
    this.#bytes += size;
    const place = join(this.#root, path);
    if (size > SMALL_BYTES) return writeFrom(place, mode, body);
    const parts: Buffer[] = [];
    for await (const chunk of body) parts.push(Buffer.from(chunk));
    const writing: Promise<void> = writeFrom(place, mode, parts).catch((error: unknown) => {
      this.#failure ??= error;
    });
    this.#writes.add(writing);
    neverRejects(writing.then(() => this.#writes.delete(writing)));
    if (this.#writes.size >= WRITES_MAX) await Promise.race(this.#writes);
  }

  #hardLinkTarget(path: string, text: string): string {
    const target = entryPath(text);
    if (this.#kinds.get(target) !== 'file')
      throw refused(path, `is a link to ${text}, which is not a file in the archive`);
    return target;
  }

  /** Resolves when no write is running. Never rejects. */
  async settled(): Promise<void> {
    await Promise.all(this.#writes);
  }

  /** Creates the links when all files exist. @throws WeightsError `wrong` for a link that leads out of the directory */
  async finish(): Promise<WrittenTree> {
    await this.settled();
    if (this.#failure !== undefined) throw this.#failure;
    for (const { path, target } of this.#hardLinks) await link(join(this.#root, target), join(this.#root, path));
    for (const { path, target } of this.#symlinks) await symlink(target, join(this.#root, path));
    const root = await realpath(this.#root);
    for (const { path } of this.#symlinks) {
      // Resolve the link: through another link `..` may lead elsewhere than the path suggests.
      const real = await leadsTo(join(this.#root, path));
      if (real !== root && !real.startsWith(root + sep))
        throw refused(path, 'is a link that points out of the environment');
    }
    return { bytes: this.#bytes, entries: this.#kinds.size };
  }
}

/** Where a link leads, even if nothing exists there: a program in the environment may later write there. */
async function leadsTo(place: string): Promise<string> {
  let at = await realpath(dirname(place));
  for (const part of (await readlink(place)).split('/')) {
    const next = join(at, part);
    at = await realpath(next).catch(() => next);
  }
  return at;
}

async function writeFrom(place: string, mode: number, chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>) {
  const file = await open(place, 'wx', mode);
  try {
    for await (const chunk of chunks) await file.writeFile(chunk);
  } finally {
    await file.close();
  }
  // Set the mode again, because the process's umask may have removed bits.
  if ((mode & 0o111) !== 0) await chmod(place, mode);
}

/** The path of an entry: `./a/b/` becomes `a/b`. */
function entryPath(text: string): string {
  const path = text.replace(/^(\.\/)+/, '').replace(/\/+$/, '');
  return path === '.' ? '' : path;
}

function symlinkTarget(path: string, target: string): string {
  if (target === '' || target.length > 1024 || target.includes('\0'))
    throw refused(path, 'is a link without a valid target');
  const advice =
    /(^|\/)bin\/python/.test(path) && target.startsWith('/')
      ? ': create it with `python3 -m venv --copies`, or pack it with conda-pack'
      : '';
  if (target.startsWith('/')) throw refused(path, `is a link to ${target}, which is outside the environment${advice}`);
  const to = posix.normalize(posix.join(posix.dirname(path), target));
  if (to === '..' || to.startsWith('../'))
    throw refused(path, `is a link to ${target}, which is outside the environment`);
  return target;
}

function refused(path: string, why: string): WeightsError {
  const shown = JSON.stringify(path.slice(0, 200));
  return new WeightsError('wrong', `the archive was rejected: ${shown} ${why}`);
}
