/**
 * A release: all files that users install, in one directory. Each file is reproducible from the sources, the key and
 * the versions of the tools. With a key, a signed manifest lists for gateways the agents of this release, and signed
 * checksums let users verify their download.
 */
import { execFileSync } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import {
  MANIFEST_FILE,
  MANIFEST_MAX_CHARS,
  PLATFORMS,
  type Platform,
  type ReleaseManifest,
  releaseMessage,
  SIGNATURE_FILE,
  singleFileName,
} from '../shared/release/release-manifest.ts';
import { errorText } from '../shared/text/error-text.ts';
import { filesBelow, sha256OfFile, writeArchive } from './archives.ts';
import { type debianPackages, image } from './image/image.ts';
import { nodeBinary } from './node-binaries.ts';
import { type PackageProject, packed, projectSchema, stageCommands, stageSeal } from './npm-packages.ts';
import type { ReleaseKey } from './release-key.ts';
import { bundledPackages, licences, writeBom } from './sbom.ts';
import { newestNeeded, seaBlob, singleFile, startMs } from './single-file.ts';
import { wheel } from './wheel.ts';

/**
 * The files have the date of the last commit, so that two runs produce the same bytes.
 * https://reproducible-builds.org/specs/source-date-epoch/
 */

/** Date for a copy without git, which has no commits: the date that npm sets in packages. Seconds since 1970. */
const WITHOUT_GIT_S = 499_162_500;

/** Date of the files, seconds since 1970: SOURCE_DATE_EPOCH, or the time of the last commit. */
function sourceDate(root: string): number {
  const given = process.env.SOURCE_DATE_EPOCH;
  if (given !== undefined && /^\d{1,11}$/.test(given)) return Number(given);
  try {
    const git = ['-C', root, 'log', '-1', '--format=%ct'];
    return Number(execFileSync('git', git, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim());
  } catch {
    return WITHOUT_GIT_S;
  }
}

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const CACHE = join(ROOT, 'node_modules/.cache/otela');
/**
 * The dashboard has hundreds of files that no agent runs. They are left out of the manifest, because each agent sends
 * it.
 */
const PAGE = 'dist/dashboard/';
/** Name of the file with checksums, in the format of coreutils' sha256sum. */
const CHECKSUMS = 'SHA256SUMS';
const PUBLIC_KEY = 'release.pub';
/** Other files that contain the version, and where. */
const VERSIONED: Record<string, RegExp> = {
  'clients/python/pyproject.toml': /^version = "(.*)"$/m,
  'clients/seal/package.json': /^ {2}"version": "(.*)",$/m,
  'deploy/helm/opentela/Chart.yaml': /^version: (.*)$/m,
};

/** Parts of a release that need a tool that a machine may lack. */
export const OPTIONAL = ['image', 'wheel'] as const;
type Optional = (typeof OPTIONAL)[number];

interface ReleaseOptions {
  /** The key that signs the release; undefined: an unsigned release, for testing. */
  key: ReleaseKey | undefined;
  /** Directory of the release. Its previous content is removed. */
  out: string;
  /** Platforms for which the agent and the image are made. */
  platforms: readonly Platform[];
  without: readonly Optional[];
  /** Whether dist/ is built first; false: it is already up to date. */
  build: boolean;
  report(line: string): void;
}

interface Making extends ReleaseOptions {
  project: PackageProject;
  /** Date of all files, seconds since 1970. */
  date: number;
  /** Directory with the npm package `opentela`, in its packed layout. */
  stage: string;
  work: string;
  nodes: ReadonlyMap<Platform, Buffer>;
}

export async function release(options: ReleaseOptions): Promise<void> {
  const { key, out, platforms, report } = options;
  const project = projectSchema.parse(JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')));
  await requireVersions(project.version);
  // Node is fetched before anything is removed or built, because fetching may fail.
  const nodes = new Map<Platform, Buffer>();
  for (const platform of platforms) nodes.set(platform, await nodeBinary(platform, CACHE));
  if (options.build) execFileSync(process.execPath, [join(ROOT, 'build.ts')], { cwd: ROOT, stdio: 'inherit' });
  const work = await mkdtemp(join(tmpdir(), 'otela-release-'));
  try {
    await rm(out, { recursive: true, force: true });
    await mkdir(out, { recursive: true });
    const making = { ...options, project, date: sourceDate(ROOT), nodes, work, stage: join(work, 'opentela') };
    await make(making);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  const files = await filesBelow(out);
  const signed =
    key === undefined ? 'NOT SIGNED: for testing only, do not publish it (--key FILE signs)' : `signed by ${key.name}`;
  report(`${out}: ${project.version}, ${files.length} files, ${signed}`);
}

async function make(making: Making): Promise<void> {
  const { key, out, project, stage, report, work, date } = making;
  const packages = await bundledPackages(ROOT, ['node_modules/highs']);
  await stageCommands(ROOT, stage, project);
  await writeFile(join(stage, 'THIRD-PARTY-LICENSES.txt'), await licences(ROOT, packages));
  if (key !== undefined) await requireSigned(join(stage, 'dist/gateway.json'), key.name);
  await copyFile(join(ROOT, 'LICENSE'), join(out, 'LICENSE'));
  await writeSingleFiles(making);
  if (key !== undefined) await writeManifest(making, key);
  report(`${await packed(stage, out)}  the commands, for npm`);
  await stageSeal(ROOT, join(work, 'seal'));
  report(`${await packed(join(work, 'seal'), out)}  the library for sealed requests, for npm`);
  report(`${await chart(making)}  for Helm`);
  await ifPossible('wheel', making, async () => {
    report(`${await wheel(join(ROOT, 'clients/python'), out, CACHE, date)}  for pip`);
  });
  const debian = await images(making);
  await writeBom(join(out, `opentela-${project.version}.cdx.json`), ROOT, {
    packages,
    debian,
    version: project.version,
    date,
  });
  if (key !== undefined) await writeFile(join(out, PUBLIC_KEY), key.publicPem);
  await writeChecksums(out, key);
}

/**
 * Makes a part of the release. If its tool is missing, a signed release fails, because it must be complete; a test
 * release continues without the part.
 */
async function ifPossible(name: Optional, { without, key, report }: Making, make: () => Promise<void>): Promise<void> {
  if (without.includes(name)) return;
  try {
    await make();
  } catch (cause) {
    if (key !== undefined) throw new Error(`the ${name} cannot be made; --without ${name} leaves it out`, { cause });
    report(`${name}  left out: ${errorText(cause)}`);
  }
}

async function requireVersions(version: string): Promise<void> {
  for (const [file, pattern] of Object.entries(VERSIONED)) {
    const found = pattern.exec(await readFile(join(ROOT, file), 'utf8'))?.[1];
    if (found !== version) throw new Error(`${file} says version ${found}, package.json ${version}`);
  }
}

async function writeSingleFiles({ out, nodes, report, work }: Making): Promise<void> {
  if (nodes.size === 0) return;
  const own = `${process.platform}-${process.arch}`;
  const blob = await seaBlob(join(ROOT, 'dist/otela-agent.cjs'), await builder(work));
  for (const [platform, node] of nodes) {
    const made = singleFile(node, blob);
    const file = join(out, singleFileName(platform));
    await writeFile(file, made, { mode: 0o755 });
    await writeFile(join(work, `node-${platform}`), node, { mode: 0o755 });
    const started = platform === own ? `starts in ${Math.round(startMs(file))} ms` : 'not started on this machine';
    const needs = Object.entries(newestNeeded(made)).map((pair) => pair.join('_'));
    const mib = (made.length / 2 ** 20).toFixed(1);
    report(`${singleFileName(platform)}  ${mib} MiB, ${started}, needs ${needs.join(', ')}`);
  }
}

/** Path of the release's version of Node for this machine, even if another version runs this program. */
async function builder(work: string): Promise<string> {
  const own = PLATFORMS.find((platform) => platform === `${process.platform}-${process.arch}`);
  if (own === undefined) throw new Error(`single files can be made only on ${PLATFORMS.join(' or ')}`);
  const file = join(work, 'builder');
  await writeFile(file, await nodeBinary(own, CACHE), { mode: 0o755 });
  return file;
}

/**
 * Writes the chart in the form of `helm package`, except for the file name, which would equal that of the npm package.
 */
async function chart({ out, project, date }: Making): Promise<string> {
  const cwd = join(ROOT, 'deploy/helm');
  const name = `opentela-chart-${project.version}.tgz`;
  const paths = (await filesBelow(join(cwd, 'opentela'))).map((path) => `opentela/${path}`);
  await writeArchive(join(out, name), { cwd, paths, date });
  return name;
}

/** Makes the images; resolves with the list of Debian's packages in them. */
async function images(making: Making): Promise<Awaited<ReturnType<typeof debianPackages>>> {
  const { out, project, stage, work, date, nodes, report } = making;
  const { version, license } = project;
  const debian: Awaited<ReturnType<typeof debianPackages>> = [];
  for (const platform of nodes.keys())
    await ifPossible('image', making, async () => {
      const node = join(work, `node-${platform}`);
      const made = await image(out, { platform, version, license, stage, node, work, date });
      debian.push(...made.debian);
      report(`${made.name}  for docker load, podman load and skopeo`);
    });
  return debian;
}

/** A released gateway requires signed agents, unless its environment says otherwise. */
async function requireSigned(manifest: string, releaseKey: string): Promise<void> {
  const known = z.looseObject({}).parse(JSON.parse(await readFile(manifest, 'utf8')));
  await writeFile(manifest, JSON.stringify({ ...known, releaseKeys: [releaseKey] }));
}

/** Lists the npm package's programs and the single files. It is written into the package and next to the files. */
async function writeManifest({ out, stage, project, date }: Making, key: ReleaseKey): Promise<void> {
  const listed = async (directory: string, wanted: (path: string) => boolean) =>
    Promise.all(
      (await filesBelow(directory))
        .filter(wanted)
        .map(async (path) => ({ path, sha256: await sha256OfFile(join(directory, path)) })),
    );
  const manifest: ReleaseManifest = {
    otela_release: 1,
    version: project.version,
    built_at: new Date(date * 1_000).toISOString(),
    files: [
      ...(await listed(stage, (path) => path.startsWith('dist/') && !path.startsWith(PAGE))),
      ...(await listed(out, (path) => path.startsWith('otela-agent-'))),
    ],
  };
  const text = `${JSON.stringify(manifest, null, 1)}\n`;
  if (text.length > MANIFEST_MAX_CHARS)
    throw new Error(`the manifest has ${text.length} characters: an agent can send at most ${MANIFEST_MAX_CHARS}`);
  for (const place of [out, stage]) {
    await writeFile(join(place, MANIFEST_FILE), text);
    await writeFile(join(place, SIGNATURE_FILE), `${key.sign(releaseMessage(text)).toString('base64url')}\n`);
  }
}

/** Writes checksums of all files. The manifest cannot list the packages, because they contain it. */
async function writeChecksums(out: string, key: ReleaseKey | undefined): Promise<void> {
  const files = await filesBelow(out);
  const lines = await Promise.all(files.map(async (path) => `${await sha256OfFile(join(out, path))}  ${path}\n`));
  const text = lines.join('');
  await writeFile(join(out, CHECKSUMS), text);
  if (key !== undefined) await writeFile(join(out, `${CHECKSUMS}.sig`), key.sign(Buffer.from(text)));
}
