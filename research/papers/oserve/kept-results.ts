import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { filesIn, filesOf, hashOf } from '../imported-files.ts';
import { type Part, sourceOf } from './parts.ts';

const HERE = import.meta.dirname;
/** `npm ci` empties it, so that another version of a library recomputes all results. */
const FOLDER = join(HERE, '../../../node_modules/.cache/oserve');
/** Data that the programs here read in addition to their sources. */
const DATA = ['../../../scheduler/data', '../../data', '../traces'].map((path) => join(HERE, path));

/**
 * Results by a hash of their inputs: the part, the version of Node, the data, and every source file that is imported to
 * compute it. One file each, written atomically.
 */
export class KeptResults {
  readonly #folder: string;
  readonly #sources = new Map<string, string>();
  readonly #data = hashOf(DATA.flatMap(filesIn).map((path) => readFileSync(path)));

  constructor(folder = FOLDER) {
    this.#folder = folder;
  }

  /** undefined: there is no result. */
  read(part: Part): unknown {
    try {
      return JSON.parse(readFileSync(this.#path(part), 'utf8'));
    } catch {
      return undefined;
    }
  }

  write(part: Part, result: unknown): void {
    mkdirSync(this.#folder, { recursive: true });
    const path = this.#path(part);
    writeFileSync(`${path}.${process.pid}`, JSON.stringify(result));
    renameSync(`${path}.${process.pid}`, path);
  }

  #path(part: Part): string {
    const source = sourceOf(part);
    const known =
      this.#sources.get(source) ?? hashOf([...filesOf(join(HERE, source))].map((path) => readFileSync(path)));
    this.#sources.set(source, known);
    return join(this.#folder, `${hashOf([JSON.stringify(part), process.version, this.#data, known])}.json`);
  }
}
