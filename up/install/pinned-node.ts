/**
 * The pinned version of Node, from which the single-file agent is made. `packaging/install/node.js` fetches the same file
 * for a clone; it must run before Node 24 is there, and this must work in an installed package.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pinned from '../../packaging/install/node.json' with { type: 'json' };
import type { Platform } from '../../shared/release/release-manifest.ts';

export const PINNED_VERSION = pinned.version;

/** Slow networks need minutes for 50 MB. */
const FETCH_MS = 20 * 60_000;

const isPinned = (bytes: Buffer, platform: Platform): boolean =>
  createHash('sha256').update(bytes).digest('hex') === pinned.sha256[platform];

/**
 * Returns the program: this process's own file if it is the pinned one, otherwise a file in `cache`, which is fetched
 * once from npm's registry.
 *
 * @throws Error if it cannot be fetched, or its digest differs
 */
export async function pinnedNode(platform: Platform, cache: string): Promise<Buffer> {
  const kept = join(cache, `node-${PINNED_VERSION}-${platform}`);
  for (const file of [process.execPath, kept]) {
    const bytes = await readFile(file).catch(() => undefined);
    if (bytes !== undefined && isPinned(bytes, platform)) return bytes;
  }
  const work = await mkdtemp(join(cache, 'node-'));
  try {
    const limits = { cwd: work, timeout: FETCH_MS, env: { ...process.env, npm_config_update_notifier: 'false' } };
    const name = `node-${platform}@${PINNED_VERSION}`;
    const { stdout } = await promisify(execFile)('npm', ['pack', '--loglevel=error', name], limits);
    const archive = stdout.trim().split('\n').at(-1) ?? '';
    await promisify(execFile)('tar', ['-xzf', archive, 'package/bin/node'], limits);
    const fetched = join(work, 'package/bin/node');
    const bytes = await readFile(fetched);
    if (!isPinned(bytes, platform))
      throw new Error(`${name} of npm's registry has another digest than this release expects`);
    await rename(fetched, kept);
    return bytes;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
