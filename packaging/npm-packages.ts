/** The npm packages of a release. They need only Node: all code is bundled or included. */
import { execFile } from 'node:child_process';
import { copyFile, cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as z from 'zod';
import { quietly } from './node-binaries.ts';

export const projectSchema = z.object({
  version: z.string(),
  license: z.string(),
  engines: z.object({ node: z.string() }),
  bin: z.record(z.string(), z.string()),
});
export type PackageProject = z.infer<typeof projectSchema>;

/** Data files that the commands read; they are next to the commands. */
const DATA = ['otela-plan-data', 'gateway.json', 'dashboard', 'otela-agent.cjs'];
const UNIT = 'otela-gateway.service';
/**
 * Package that is not bundled, because its WebAssembly is next to its code. It is included, so that an installation
 * fetches nothing from a registry.
 */
const WITHIN = 'highs';

/**
 * Writes the npm package `opentela` to `stage`, as it is packed and as the container image has it, but without its
 * package.json.
 */
export async function stageCommands(root: string, stage: string, project: PackageProject): Promise<void> {
  await mkdir(join(stage, 'dist'), { recursive: true });
  const programs = Object.values(project.bin);
  for (const path of [...programs, ...DATA.map((name) => `dist/${name}`)])
    await cp(join(root, path), join(stage, path), { recursive: true });
  await cp(join(root, 'node_modules', WITHIN), join(stage, 'node_modules', WITHIN), { recursive: true });
  await copyFile(join(root, 'LICENSE'), join(stage, 'LICENSE'));
  await copyFile(join(root, 'packaging/npm/opentela.md'), join(stage, 'README.md'));
  await copyFile(join(root, 'deploy/gateway', UNIT), join(stage, UNIT));
  const { version, license, engines, bin } = project;
  const within = z.object({ version: z.string() }).parse(await json(join(root, 'node_modules', WITHIN)));
  const described = {
    name: 'opentela',
    version,
    description:
      'One OpenAI-compatible endpoint in front of language-model engines on HPC clusters: gateway, agent and tools.',
    license,
    type: 'module',
    engines,
    bin,
    dependencies: { [WITHIN]: within.version },
    bundleDependencies: [WITHIN],
  };
  await writeFile(join(stage, 'package.json'), `${JSON.stringify(described, null, 2)}\n`);
}

/** Writes the package `@opentela/seal` to `stage`, in the layout of build.ts. */
export async function stageSeal(root: string, stage: string): Promise<void> {
  await cp(join(root, 'dist/opentela-seal'), stage, { recursive: true });
  await copyFile(join(root, 'LICENSE'), join(stage, 'LICENSE'));
}

/** Packs `stage` into a tarball in `out` and resolves with its name. The same files always give the same bytes. */
export async function packed(stage: string, out: string): Promise<string> {
  const args = ['pack', '--loglevel=error', '--ignore-scripts', '--pack-destination', out];
  const { stdout } = await promisify(execFile)('npm', args, { cwd: stage, env: quietly() });
  return stdout.trim();
}

async function json(directory: string): Promise<unknown> {
  return JSON.parse(await readFile(join(directory, 'package.json'), 'utf8'));
}
