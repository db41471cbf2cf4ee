/**
 * `npm run install:sizes` prints the bytes that `npm ci` installs, and each package above 5 MiB with the reason why it
 * is needed (reasons.json). It fails if a large package has no reason, or a reason has no package.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join, matchesGlob } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { MIB, mib, type Size, sizeOf } from './folder-size.ts';
import { outsideScript } from './npm.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LARGE_BYTES = 5 * MIB;

const lockSchema = z.object({
  packages: z.record(
    z.string(),
    z.object({ integrity: z.string().optional(), dev: z.boolean().optional(), devOptional: z.boolean().optional() }),
  ),
});

interface Installed extends Size {
  name: string;
  integrity: string | undefined;
}

/** Reasons by package name; `*` in a name stands for an operating system. */
const REASONS = z
  .record(z.string(), z.string().min(20))
  .parse(JSON.parse(readFileSync(new URL('reasons.json', import.meta.url), 'utf8')));

/** All packages that are installed on this machine and are not only for development. */
function installed(): Installed[] {
  const { packages } = lockSchema.parse(JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')));
  const paths = Object.entries(packages).filter(
    ([path, { dev, devOptional }]) =>
      path.startsWith('node_modules/') && !dev && !devOptional && existsSync(join(ROOT, path)),
  );
  const seen = new Set<number>();
  const sized = paths.map(([path, { integrity }]) => ({
    name: path.slice('node_modules/'.length),
    integrity,
    ...sizeOf(join(ROOT, path), 'node_modules', seen),
  }));
  const node = join(ROOT, 'node_modules/.bin/node');
  return [...sized, { name: 'node', integrity: undefined, ...sizeOf(node) }];
}

/**
 * Large packages without a reason, and reasons without a large package. Only `node` may be missing, because a machine
 * with Node 24 does not need it.
 */
export function faults(all: readonly Installed[] = installed()): string[] {
  const large = all.filter(({ bytes }) => bytes > LARGE_BYTES);
  const names = Object.keys(REASONS);
  const unreasoned = large.filter(({ name }) => !names.some((pattern) => matchesGlob(name, pattern)));
  const stale = names.filter((pattern) => pattern !== 'node' && !large.some(({ name }) => matchesGlob(name, pattern)));
  return [
    ...unreasoned.map(
      ({ name, bytes }) => `${name} has ${mib(bytes).trim()} MiB and no reason in packaging/install/reasons.json`,
    ),
    ...stale.map(
      (pattern) => `packaging/install/reasons.json has ${pattern}, but no package above 5 MiB has this name`,
    ),
  ];
}

/**
 * Size of the package's archive in npm's cache, where its digest is the key; undefined if npm fetched it into another
 * cache.
 */
function packedBytes({ integrity }: Installed, cache: string): number | undefined {
  const [algorithm, digest = ''] = (integrity ?? '').split('-');
  const hex = Buffer.from(digest, 'base64').toString('hex');
  if (algorithm === undefined || hex === '') return undefined;
  return statSync(join(cache, '_cacache/content-v2', algorithm, hex.slice(0, 2), hex.slice(2, 4), hex.slice(4)), {
    throwIfNoEntry: false,
  })?.size;
}

function main(): number {
  const env = outsideScript(process.env);
  const cache = execFileSync('npm', ['config', 'get', 'cache'], { encoding: 'utf8', env }).trim();
  const all = installed();
  const packed = all.map((one) => packedBytes(one, cache));
  const unknown = packed.filter((bytes) => bytes === undefined).length;
  const total = (of: (size: Size) => number) => mib(all.reduce((sum, one) => sum + of(one), 0)).trim();
  console.log(`${all.length} packages: ${packed.reduce<number>((sum, bytes) => sum + (bytes ?? 0), 0)} bytes packed\
${unknown > 0 ? ` (without ${unknown} that are not in npm's cache)` : ''}, ${total(({ bytes }) => bytes)} MiB unpacked, ${total(({ diskBytes }) => diskBytes)} MiB on disk\n`);
  for (const { name, bytes } of all.filter((one) => one.bytes > LARGE_BYTES).toSorted((a, b) => b.bytes - a.bytes)) {
    const [, reason = '(no reason)'] = Object.entries(REASONS).find(([pattern]) => matchesGlob(name, pattern)) ?? [];
    console.log(`${mib(bytes)} MiB  ${name}: ${reason}`);
  }
  const wrong = faults(all);
  for (const fault of wrong) console.error(fault);
  return wrong.length === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = main();
