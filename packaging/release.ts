/**
 * A release as it is handed out: the files that run, the agent as one file for each kind of machine, npm packages, a signed manifest
 * that gateways know agents by, and signed checksums for people.
 */
import { execFileSync } from 'node:child_process';
import { copyFile, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import {
  MANIFEST_FILE,
  MANIFEST_MAX_CHARS,
  type Manifest,
  type Platform,
  releaseMessage,
  SIGNATURE_FILE,
  singleFileName,
} from '../shared/release/release.ts';
import type { ReleaseKey } from './key.ts';
import { nodeBinary, sha256 } from './node-binaries.ts';
import { packPackages, projectSchema } from './npm-packages.ts';
import { newestNeeded, seaBlob, singleFile, startMs } from './single-file.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const NODES = join(ROOT, 'node_modules/.cache/otela');
/** What is installed. `dist/worker` is for looking at, and other releases may lie in dist/. */
const RUNS = [
  'otela-agent.js',
  'otela-gateway.js',
  'otela-plan.js',
  'otela-plan-data',
  'otela-factory.js',
  'gateway.json',
  'dashboard',
];
const BESIDE = ['package-lock.json', 'LICENSE', 'README.md'];
/** Hundreds of files that no agent runs. Each agent brings the manifest, so they are in the checksums alone. */
const PAGE = 'dist/dashboard/';
/** As coreutils write and check it. */
const CHECKSUMS = 'SHA256SUMS';
const PUBLIC_KEY = 'release.pub';

interface ReleaseOptions {
  key: ReleaseKey;
  /** What lies there is removed. */
  out: string;
  platforms: readonly Platform[];
  report(line: string): void;
}

export async function release({ key, out, platforms, report }: ReleaseOptions): Promise<void> {
  const project = projectSchema.parse(JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')));
  // Before anything is removed or built: this may not be had.
  const nodes = await Promise.all(
    platforms.map(async (platform) => [platform, await nodeBinary(platform, NODES)] as const),
  );
  execFileSync(process.execPath, [join(ROOT, 'build.ts')], { cwd: ROOT, stdio: 'inherit' });
  await rm(out, { recursive: true, force: true });
  await mkdir(join(out, 'dist'), { recursive: true });
  for (const name of RUNS) await cp(join(ROOT, 'dist', name), join(out, 'dist', name), { recursive: true });
  for (const name of BESIDE) await copyFile(join(ROOT, name), join(out, name));
  await writePackageJson(out);
  await requireSigned(join(out, 'dist/gateway.json'), key.name);
  await writeSingleFiles(out, nodes, report);
  await writeManifest(out, project.version, key);
  for (const tarball of await packPackages(out, project)) report(`${tarball}  for npm`);
  await writeFile(join(out, PUBLIC_KEY), key.publicPem);
  const files = await filesBelow(out);
  await writeChecksums(out, files, key);
  report(`${out}: ${project.version}, ${files.length} files, signed by ${key.name}`);
}

/** Without the scripts, which run files of a clone: npm would run the one for after an installation. */
async function writePackageJson(out: string): Promise<void> {
  const { scripts: _, ...rest } = z
    .looseObject({})
    .parse(JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')));
  await writeFile(join(out, 'package.json'), `${JSON.stringify(rest, null, 2)}\n`);
}

async function writeSingleFiles(
  out: string,
  nodes: readonly (readonly [Platform, Buffer])[],
  report: ReleaseOptions['report'],
): Promise<void> {
  if (nodes.length === 0) return;
  const blob = await seaBlob(join(ROOT, 'dist/otela-agent.cjs'));
  for (const [platform, node] of nodes) {
    const made = singleFile(node, blob);
    const file = join(out, singleFileName(platform));
    await writeFile(file, made, { mode: 0o755 });
    const own = platform === `${process.platform}-${process.arch}`;
    const started = own ? `starts in ${Math.round(startMs(file))} ms` : 'not started on this machine';
    const needs = Object.entries(newestNeeded(made)).map((pair) => pair.join('_'));
    const mib = (made.length / 2 ** 20).toFixed(1);
    report(`${singleFileName(platform)}  ${mib} MiB, ${started}, needs ${needs.join(', ')}`);
  }
}

/** The gateway of a release asks agents for one, unless its environment says otherwise. */
async function requireSigned(manifest: string, releaseKey: string): Promise<void> {
  const known = z.looseObject({}).parse(JSON.parse(await readFile(manifest, 'utf8')));
  await writeFile(manifest, JSON.stringify({ ...known, releaseKeys: [releaseKey] }));
}

async function writeManifest(out: string, version: string, key: ReleaseKey): Promise<void> {
  const files = (await filesBelow(out)).filter((path) => !path.startsWith(PAGE));
  const manifest: Manifest = {
    otela_release: 1,
    version,
    built_at: new Date().toISOString(),
    files: await Promise.all(files.map(async (path) => ({ path, sha256: await digestOf(out, path) }))),
  };
  const text = `${JSON.stringify(manifest, null, 1)}\n`;
  if (text.length > MANIFEST_MAX_CHARS)
    throw new Error(`the manifest has ${text.length} characters: agents may bring ${MANIFEST_MAX_CHARS}`);
  await writeFile(join(out, MANIFEST_FILE), text);
  await writeFile(join(out, SIGNATURE_FILE), `${key.sign(releaseMessage(text)).toString('base64url')}\n`);
}

/** The manifest cannot list the packages: it is in them. This lists everything. */
async function writeChecksums(out: string, files: readonly string[], key: ReleaseKey): Promise<void> {
  const lines = await Promise.all(files.map(async (path) => `${await digestOf(out, path)}  ${path}\n`));
  const text = lines.join('');
  await writeFile(join(out, CHECKSUMS), text);
  await writeFile(join(out, `${CHECKSUMS}.sig`), key.sign(Buffer.from(text)));
}

async function digestOf(out: string, path: string): Promise<string> {
  return sha256(await readFile(join(out, path)));
}

/** Paths below `directory`, in order. */
async function filesBelow(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map((entry) => relative(directory, join(entry.parentPath, entry.name))).sort();
}
