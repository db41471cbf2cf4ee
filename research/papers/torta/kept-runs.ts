/** Results in a folder, so that an experiment of hours continues after an interruption. */
import { createHash } from 'node:crypto';
import { globSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';

const ROOT = join(import.meta.dirname, '../../..');
/** What a result depends on. Bands, reasons and tables are not: they apply to kept results, too. */
const SOURCES = [
  'research/regions/**/*.ts',
  'research/data/regions/*.json',
  'research/forecast/*.ts',
  'research/papers/torta/{ablation,experiment,forecasters,guarantee-rows,learning,milp,scenarios}.ts',
  'scheduler/regions/smooth-transport.ts',
  'scheduler/regions/learned/*.ts',
  'scheduler/forecast/*.ts',
];

/** Digest of the sources: a result of other sources is not used. */
function sourcesDigest(): string {
  const digest = createHash('sha256');
  for (const path of SOURCES.flatMap((pattern) => globSync(pattern, { cwd: ROOT })).sort())
    digest.update(`${path}\n`).update(readFileSync(join(ROOT, path)));
  return digest.digest('hex').slice(0, 16);
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
