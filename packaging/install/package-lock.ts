/**
 * `npm run package-lock` updates package-lock.json after a change of package.json; `--check` fails if an entry differs
 * from what this writes. If an entry has no `resolved`, npm asks the registry for all versions of its package,
 * megabytes for some, before it fetches one archive. The host is a placeholder: with `replace-registry-host=always` in
 * .npmrc, npm uses the configured registry.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LOCK = join(ROOT, 'package-lock.json');
/**
 * Placeholder for the registry's host, in the reserved top-level domain `.invalid` (RFC 2606), so that no request is
 * ever sent to it.
 */
const PLACEHOLDER = 'https://registry.invalid/';

const entrySchema = z.object({
  /** Name of the package; npm writes it only for an alias, because its path has another name. */
  name: z.string().optional(),
  version: z.string().optional(),
  resolved: z.string().optional(),
  integrity: z.string().optional(),
  link: z.boolean().optional(),
  inBundle: z.boolean().optional(),
});
type Entry = z.infer<typeof entrySchema>;
const recordSchema = z.record(z.string(), z.unknown());
const packagesSchema = z.record(z.string(), recordSchema);

/** Name of the package at a path: `node_modules/a/node_modules/@scope/b` is `@scope/b`. */
function packageName(path: string, entry: Entry): string {
  return entry.name ?? path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
}

/** Path of a package's archive below the registry's URL. */
export function archivePath(name: string, version: string): string {
  return `${name}/-/${name.split('/').at(-1)}-${version}.tgz`;
}

/**
 * True for an archive of the registry. False for this project, a workspace, a link, a bundled package, or another
 * source.
 */
function comesFromRegistry(path: string, { version, resolved, link, inBundle }: Entry): boolean {
  const elsewhere = resolved !== undefined && !/^https?:/.test(resolved);
  return path.includes('node_modules/') && !link && !inBundle && !elsewhere && version !== undefined;
}

/**
 * The complete text of the lock file. `integrityOf` is called for entries without integrity; npm omits it for archives
 * of other systems that it has not fetched. Keys keep npm's order.
 */
export function completeLock(text: string, integrityOf: (name: string, version: string) => string): string {
  // A record keeps the order of keys. With an object schema, zod would put the known keys first.
  const lock = recordSchema.parse(JSON.parse(text));
  const packages = Object.entries(packagesSchema.parse(lock.packages)).map(([path, raw]) => {
    const entry = entrySchema.parse(raw);
    if (!comesFromRegistry(path, entry)) return [path, raw];
    const { name, version, resolved: _, integrity, ...rest } = raw;
    const [real, wanted] = [packageName(path, entry), entry.version ?? ''];
    const said = {
      ...(name === undefined ? {} : { name }),
      version,
      resolved: PLACEHOLDER + archivePath(real, wanted),
      integrity: integrity ?? integrityOf(real, wanted),
    };
    return [path, { ...said, ...rest }];
  });
  return `${JSON.stringify({ ...lock, packages: Object.fromEntries(packages) }, null, 2)}\n`;
}

/**
 * Asks the registry for the integrity of a package.
 *
 * @throws Error if the registry does not know the package
 */
function askIntegrity(name: string, version: string): string {
  const asked = spawnSync('npm', ['view', `${name}@${version}`, 'dist.integrity'], { encoding: 'utf8' });
  const integrity = asked.stdout?.trim() ?? '';
  if (!integrity.startsWith('sha512-')) throw new Error(`npm view ${name}@${version}: no integrity\n${asked.stderr}`);
  return integrity;
}

/** Describes what is wrong with the lock file; undefined: nothing. */
export function lockFault(text: string): string | undefined {
  const without: string[] = [];
  const complete = completeLock(text, (name) => {
    without.push(name);
    return '';
  });
  if (without.length > 0) return `no integrity of ${without.join(', ')}`;
  return text === complete ? undefined : '`resolved` is missing or names a host';
}

function write(): number {
  const update = ['install', '--package-lock-only', '--ignore-scripts'];
  const { status } = spawnSync('npm', update, { cwd: ROOT, stdio: 'inherit' });
  if (status === 0) writeFileSync(LOCK, completeLock(readFileSync(LOCK, 'utf8'), askIntegrity));
  return status ?? 1;
}

function check(): number {
  const fault = lockFault(readFileSync(LOCK, 'utf8'));
  if (fault === undefined) return 0;
  console.error(`package-lock.json: ${fault}. \`npm run package-lock\` writes it.`);
  return 1;
}

if (import.meta.main) process.exitCode = process.argv.includes('--check') ? check() : write();
