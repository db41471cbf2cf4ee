/** Fetches the Node binary of each platform for single files from npm's registry, and verifies its digest. */
import { createHash } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Platform } from '../shared/release/release-manifest.ts';
import { fetchNode, PINNED } from './install/node.js';

/**
 * Version of Node in a release. `npm run release` runs under this version too, because a blob is readable only by the
 * version of Node that wrote it.
 */
export const NODE_VERSION = PINNED.version;

/**
 * Returns the binary: this process's own file if it has the version and platform, otherwise a file in `cache`, which is
 * fetched once.
 *
 * @throws Error if it cannot be fetched
 */
export async function nodeBinary(platform: Platform, cache: string): Promise<Buffer> {
  const kept = join(cache, `node-${NODE_VERSION}-${platform}`);
  for (const file of [process.execPath, kept]) {
    const known = await readFile(file).catch(() => undefined);
    if (known !== undefined && sha256(known) === PINNED.sha256[platform]) return known;
  }
  await mkdir(cache, { recursive: true });
  await fetchNode(platform, kept).catch((cause: unknown) => {
    throw new Error(`cannot fetch Node for ${platform}; choose other platforms with --platform, or --platform none`, {
      cause,
    });
  });
  return readFile(kept);
}

/**
 * Environment without npm's settings. Under `npm run`, they are environment variables, which an inner npm would read as
 * its own settings.
 */
export function quietly(): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(
    ([name]) => !/^npm_(config_(local_)?prefix|package|lifecycle)/i.test(name),
  );
  return { ...Object.fromEntries(own), npm_config_update_notifier: 'false' };
}

export function sha256(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}
