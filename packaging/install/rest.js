// @ts-check
/**
 * Installs what `npm ci` leaves out (`omit=dev` in .npmrc): everything that tests, checks, benches and deployments need
 * and the programs do not.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { npm } from './npm.js';
import { ROOT } from './paths.js';

/** @typedef {{ version?: string, dev?: boolean, optional?: boolean, link?: boolean }} Entry */

/**
 * @param {string} file
 * @returns {Promise<Record<string, Entry>>}
 */
async function packagesOf(file) {
  const text = await readFile(file, 'utf8').catch(() => '{}');
  return JSON.parse(text).packages ?? {};
}

/**
 * Paths of development packages in the lock file that are missing in node_modules or have another version. Optional
 * ones belong to other systems.
 * @param {Record<string, Entry>} wanted
 * @param {Record<string, Entry>} installed npm's own record of it
 */
export function missing(wanted, installed) {
  return Object.entries(wanted)
    .filter(([path, { dev, optional, version }]) => dev && !optional && installed[path]?.version !== version)
    .map(([path]) => path);
}

/**
 * Installs development packages if any is missing.
 * @param {(what: string) => void} tell
 */
export async function installRest(tell) {
  const wanted = await packagesOf(join(ROOT, 'package-lock.json'));
  const lacks = missing(wanted, await packagesOf(join(ROOT, 'node_modules/.package-lock.json')));
  if (lacks.length === 0) return;
  tell(`installing ${lacks.length} packages for developers, once: npm install --include=dev`);
  await npm(['install', '--include=dev', '--no-save', '--loglevel=error'], { quiet: false });
}
