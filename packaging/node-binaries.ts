/** The Node binary for single files of each platform: from npm's registry, verified by its digest. */
import { createHash } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Platform } from '../shared/release/release-manifest.ts';
import { fetchNode, PINNED } from './install/node.js';

/** `npm run release` also runs under this version, because a blob is readable only by the version that wrote it. */
export const NODE_VERSION = PINNED.version;

/**
 * Returns the binary: this process's own file if it is the same, otherwise the file that was once fetched into `cache`.
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
    throw new Error(`no Node for ${platform}; --platform names the files to make, none makes none`, { cause });
  });
  return readFile(kept);
}

/** Under `npm run` the outer npm's settings are environment variables, which an inner npm would read as its own. */
export function quietly(): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(
    ([name]) => !/^npm_(config_(local_)?prefix|package|lifecycle)/i.test(name),
  );
  return { ...Object.fromEntries(own), npm_config_update_notifier: 'false' };
}

export function sha256(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}
