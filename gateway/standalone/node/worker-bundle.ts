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
  /** Where the dashboard's files are. */
  assetsDir: string;
}

/** What the bundle is made of. */
const SOURCES = ['gateway', 'shared', 'migrations', 'wrangler.toml', 'package-lock.json', 'build.ts'];
const PAGE_SOURCES = ['dashboard', 'shared', 'package-lock.json', 'build.ts'];

export async function loadWorkerBundle(): Promise<WorkerBundle> {
  const here = fileURLToPath(import.meta.url);
  const inClone = here.endsWith('.ts');
  const root = fileURLToPath(new URL(inClone ? '../../..' : '..', import.meta.url));
  const dist = join(root, 'dist/worker-standalone');
  const assetsDir = join(root, 'dist/dashboard');
  const build = (part: string) => promisify(execFile)(process.execPath, [join(root, 'build.ts'), part], { cwd: root });
  if (inClone && (await newest(join(dist, 'worker.json'))) <= (await newestOf(root, SOURCES))) await build('worker');
  if (inClone && (await newest(join(assetsDir, 'index.html'))) <= (await newestOf(root, PAGE_SOURCES)))
    await build('dashboard');
  const read = (name: string) => readFile(join(dist, name), 'utf8');
  const [gateway, d1, manifest] = await Promise.all([read('gateway.js'), read('d1.js'), read('worker.json')]);
  return { gateway, d1, assetsDir, ...manifestSchema.parse(JSON.parse(manifest)) };
}

async function newestOf(root: string, sources: readonly string[]): Promise<number> {
  const times = await Promise.all(sources.map((name) => newest(join(root, name))));
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
