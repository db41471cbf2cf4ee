/**
 * Finds the files that `serve` needs in addition to its code. In an installed package they are beside the code; a clone
 * reads the migrations directly and builds the dashboard.
 */
import { execFile } from 'node:child_process';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import * as z from 'zod';

/** One file of migrations/, applied completely or not at all. */
interface Migration {
  name: string;
  statements: string[];
}

const migrationsSchema = z.array(z.object({ name: z.string(), statements: z.array(z.string()) }));

/** The content of dist/gateway.json, which build.ts creates. */
const manifestSchema = z.object({
  /** Migrations of accounts in a file or in D1. */
  migrations: migrationsSchema,
  postgresMigrations: migrationsSchema,
  /** In a release: the public keys that must have signed the releases of agents. */
  releaseKeys: z.array(z.string()).optional(),
});

export interface ProgramFiles extends z.infer<typeof manifestSchema> {
  /** Directory of the dashboard's files. */
  assetsDir: string;
}

/** Source paths of the dashboard. */
export const PAGE_SOURCES = ['dashboard', 'shared', 'clients/seal', 'package-lock.json', 'build.ts'];

const HERE = fileURLToPath(import.meta.url);
const IN_CLONE = HERE.endsWith('.ts');
const ROOT = fileURLToPath(new URL(IN_CLONE ? '../../../..' : '..', import.meta.url));
const PAGE = join(ROOT, 'dist/dashboard');

/** Builds the dashboard again if a source is newer. */
export async function loadProgramFiles(): Promise<ProgramFiles> {
  return { ...(await loadManifest()), assetsDir: await dashboardDirectory() };
}

/** Returns the manifest without building the dashboard. */
export async function loadManifest(): Promise<z.infer<typeof manifestSchema>> {
  if (IN_CLONE) return readAllMigrations();
  return manifestSchema.parse(JSON.parse(await readFile(join(ROOT, 'dist/gateway.json'), 'utf8')));
}

export async function dashboardDirectory(): Promise<string> {
  if (IN_CLONE && (await pageIsStale()))
    await promisify(execFile)(process.execPath, [join(ROOT, 'build.ts'), 'dashboard'], { cwd: ROOT });
  return PAGE;
}

/** In a clone: true if a source of the dashboard is newer than its build, or if there is no build. */
export async function pageIsStale(): Promise<boolean> {
  return (await newest(join(PAGE, 'index.html'))) <= (await newestOf(PAGE_SOURCES));
}

/** Reads the migrations of both kinds of databases from the sources. */
export async function readAllMigrations(): Promise<Pick<ProgramFiles, 'migrations' | 'postgresMigrations'>> {
  const [migrations, postgresMigrations] = await Promise.all([
    readMigrations(join(ROOT, 'migrations')),
    readMigrations(join(ROOT, 'gateway/hosts/node/postgresql/migrations')),
  ]);
  return { migrations, postgresMigrations };
}

export async function readMigrations(directory: string): Promise<Migration[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith('.sql')).sort();
  const read = async (name: string) => {
    const sql = await readFile(join(directory, name), 'utf8');
    return { name, statements: sql.split('--> statement-breakpoint').map((one) => one.trim()) };
  };
  return Promise.all(names.map(read));
}

async function newestOf(sources: readonly string[]): Promise<number> {
  const times = await Promise.all(sources.map((name) => newest(join(ROOT, name))));
  return Math.max(...times);
}

/**
 * Returns the time of the latest modification below `path`, in milliseconds; 0 if there is nothing. A directory's time
 * reflects removals.
 */
async function newest(path: string): Promise<number> {
  const self = await stat(path).catch(() => undefined);
  if (self === undefined) return 0;
  if (!self.isDirectory()) return self.mtimeMs;
  const below = await Promise.all((await readdir(path)).map((name) => newest(join(path, name))));
  return Math.max(self.mtimeMs, ...below);
}
