/** The Worker that `serve` runs: from dist/ in an installed package; in a clone built anew when a source is newer. */
import { execFile } from 'node:child_process';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import * as z from 'zod';

const manifestSchema = z.object({
  compatibilityDate: z.string(),
  compatibilityFlags: z.array(z.string()),
  migrations: z.array(z.object({ name: z.string(), statements: z.array(z.string()) })),
  /** Of a release: the keys whose releases its gateway admits agents of. */
  releaseKeys: z.array(z.string()).optional(),
});

export interface WorkerBundle extends z.infer<typeof manifestSchema> {
  gateway: string;
  d1: string;
}

/** What the bundle is made of. */
const SOURCES = ['gateway', 'shared', 'migrations', 'wrangler.toml', 'package-lock.json', 'build.ts'];

export async function loadWorkerBundle(): Promise<WorkerBundle> {
  const here = fileURLToPath(import.meta.url);
  const inClone = here.endsWith('.ts');
  const root = fileURLToPath(new URL(inClone ? '../../..' : '..', import.meta.url));
  const dist = join(root, 'dist/worker-standalone');
  if (inClone && (await newest(join(dist, 'worker.json'))) <= (await newestSource(root))) {
    await promisify(execFile)(process.execPath, [join(root, 'build.ts'), 'worker'], { cwd: root });
  }
  const read = (name: string) => readFile(join(dist, name), 'utf8');
  const [gateway, d1, manifest] = await Promise.all([read('gateway.js'), read('d1.js'), read('worker.json')]);
  return { gateway, d1, ...manifestSchema.parse(JSON.parse(manifest)) };
}

async function newestSource(root: string): Promise<number> {
  const times = await Promise.all(SOURCES.map((name) => newest(join(root, name))));
  return Math.max(...times);
}

/** Latest change below `path`, in milliseconds; 0 where there is nothing. A directory's own time tells of removals. */
async function newest(path: string): Promise<number> {
  const self = await stat(path).catch(() => undefined);
  if (self === undefined) return 0;
  if (!self.isDirectory()) return self.mtimeMs;
  const below = await Promise.all((await readdir(path)).map((name) => newest(join(path, name))));
  return Math.max(self.mtimeMs, ...below);
}
