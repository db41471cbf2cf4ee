/**
 * `npm run package-lock` writes package-lock.json anew after a change of package.json; `--check` fails where an entry is not as this writes it.
 * An entry without `resolved` makes npm ask the registry for all versions of its package, megabytes of some, before it takes one archive.
 * The host is a placeholder: `replace-registry-host=always` in .npmrc has npm ask the registry that the machine is set up for.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LOCK = join(ROOT, 'package-lock.json');
/** Of the reserved top-level domain `.invalid` (RFC 2606): never asked for. */
export const PLACEHOLDER = 'https://registry.invalid/';

const entrySchema = z.object({
  /** Of an alias, whose path has another one. */
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

/** `node_modules/a/node_modules/@scope/b` is `@scope/b`. */
export function packageName(path: string, entry: Entry): string {
  return entry.name ?? path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
}

/** Where a registry has its archive, below its own address. */
export function archivePath(name: string, version: string): string {
  return `${name}/-/${name.split('/').at(-1)}-${version}.tgz`;
}

/** An archive of the registry; not this project, a workspace, a link to one, what another archive brings, or a package of another source. */
function comesFromRegistry(path: string, { version, resolved, link, inBundle }: Entry): boolean {
  const elsewhere = resolved !== undefined && !/^https?:/.test(resolved);
  return path.includes('node_modules/') && !link && !inBundle && !elsewhere && version !== undefined;
}

/**
 * The text of the lock file as it shall be. `integrityOf`: of entries that have none; npm leaves it out for archives of other systems that it
 * has not seen. Keys keep npm's own order.
 */
export function completeLock(text: string, integrityOf: (name: string, version: string) => string): string {
  // Not an object's schema: zod would put the keys that it knows first.
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

/** As the registry says. @throws Error where it does not know */
function askIntegrity(name: string, version: string): string {
  const asked = spawnSync('npm', ['view', `${name}@${version}`, 'dist.integrity'], { encoding: 'utf8' });
  const integrity = asked.stdout?.trim() ?? '';
  if (!integrity.startsWith('sha512-')) throw new Error(`npm view ${name}@${version}: no integrity\n${asked.stderr}`);
  return integrity;
}

/** What is wrong with the lock file; nothing where it is as this program writes it. */
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
