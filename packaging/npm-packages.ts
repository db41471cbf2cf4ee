/** The npm packages of a release: what runs, the manifest that vouches for it, and no dependency that is bundled already. */
import { execFile } from 'node:child_process';
import { copyFile, cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import * as z from 'zod';
import { MANIFEST_FILE, SIGNATURE_FILE } from '../shared/release/release.ts';
import { quietly } from './node-binaries.ts';

export const projectSchema = z.object({
  version: z.string(),
  license: z.string(),
  engines: z.object({ node: z.string() }),
});
export type Project = z.infer<typeof projectSchema>;

interface NpmPackage {
  name: string;
  description: string;
  /** Of the release's dist/. The first one is the command. */
  files: [string, ...string[]];
}

const PACKAGES: NpmPackage[] = [
  {
    name: 'otela-agent',
    description: 'Serves a language-model engine of this machine to OpenTela gateways, over outgoing connections only.',
    files: ['otela-agent.js'],
  },
  {
    name: 'otela-gateway',
    description: 'One OpenAI-compatible endpoint in front of engines that run wherever there are GPUs.',
    files: ['otela-gateway.js', 'gateway.json', 'dashboard'],
  },
];

/** Packs what lies in `release` into tarballs there; resolves with their names. */
export async function packPackages(release: string, project: Project): Promise<string[]> {
  const work = await mkdtemp(join(tmpdir(), 'otela-npm-'));
  try {
    const packed: string[] = [];
    for (const one of PACKAGES) packed.push(await pack(one, project, release, join(work, one.name)));
    return packed;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function pack(one: NpmPackage, project: Project, release: string, staged: string): Promise<string> {
  await mkdir(join(staged, 'dist'), { recursive: true });
  for (const name of one.files) await cp(join(release, 'dist', name), join(staged, 'dist', name), { recursive: true });
  for (const name of [MANIFEST_FILE, SIGNATURE_FILE, 'LICENSE'])
    await copyFile(join(release, name), join(staged, name));
  await copyFile(fileURLToPath(new URL(`npm/${one.name}.md`, import.meta.url)), join(staged, 'README.md'));
  const { version, license, engines } = project;
  const described = {
    name: one.name,
    version,
    description: one.description,
    license,
    type: 'module',
    engines,
    bin: { [one.name]: `dist/${one.files[0]}` },
  };
  await writeFile(join(staged, 'package.json'), `${JSON.stringify(described, null, 2)}\n`);
  const args = ['pack', '--loglevel=error', '--ignore-scripts', '--pack-destination', release];
  const { stdout } = await promisify(execFile)('npm', args, { cwd: staged, env: quietly() });
  return stdout.trim();
}
