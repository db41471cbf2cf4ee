/** Results in a folder, so that an experiment of hours continues after an interruption. */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import * as z from 'zod';
import { filesIn, filesOf, hashOf } from '../imported-files.ts';

const ROOT = join(import.meta.dirname, '../../..');
/** The programs that compute results. What only prints or judges them is not here: it applies to kept results, too. */
const PROGRAMS = ['ablation', 'experiment', 'forecasters', 'guarantee-rows', 'learning', 'scenarios'];
/** Data that they read in addition to their sources. */
const DATA = ['research/data/regions', 'scheduler/data'];

/** Paths of the files on which results depend. */
export function resultSources(): string[] {
  const found = new Set<string>();
  for (const name of PROGRAMS) filesOf(join(import.meta.dirname, `${name}.ts`), found);
  return [...found, ...DATA.flatMap((folder) => filesIn(join(ROOT, folder)))]
    .map((path) => relative(ROOT, path))
    .sort();
}

/** Digest of the sources and of Node's version: a result of other ones is not used. */
function sourcesDigest(): string {
  const contents = resultSources().flatMap((path) => [path, readFileSync(join(ROOT, path))]);
  return hashOf([process.version, ...contents]).slice(0, 16);
}

const fileSchema = z.object({ key: z.string(), value: z.unknown() });

export class KeptRuns {
  readonly #folder: string | undefined;

  /** `folder`: absent: nothing is kept. Several processes may share it. */
  constructor(folder?: string) {
    this.#folder = folder === undefined ? undefined : join(folder, sourcesDigest());
    if (this.#folder !== undefined) mkdirSync(this.#folder, { recursive: true });
  }

  /** The kept result of `key`, or that of `make`, which must be plain data. */
  async get<T>(key: Readonly<Record<string, unknown>>, make: () => Promise<T>): Promise<T> {
    if (this.#folder === undefined) return make();
    const text = JSON.stringify(key);
    const path = join(this.#folder, `${createHash('sha256').update(text).digest('hex').slice(0, 32)}.json`);
    const kept = this.#read<T>(path, text);
    if (kept !== undefined) return kept.value;
    const value = await make();
    // Another process may read the folder, and this one may be ended at any time.
    writeFileSync(`${path}.${process.pid}`, JSON.stringify({ key: text, value }));
    renameSync(`${path}.${process.pid}`, path);
    return value;
  }

  /** Undefined for a file that is missing, unfinished, or of another key. */
  #read<T>(path: string, key: string): { value: T } | undefined {
    try {
      const file: unknown = JSON.parse(readFileSync(path, 'utf8'));
      const found = fileSchema.safeParse(file).data;
      return found?.key === key ? { value: found.value as T } : undefined;
    } catch {
      return undefined;
    }
  }
}
