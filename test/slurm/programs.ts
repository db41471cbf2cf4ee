/**
 * What a user of a cluster would have installed: one file for each program, Node, an engine. All users can read them,
 * even if another user owns the checkout.
 */
import { chmod, copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { build } from 'esbuild';
import { REQUIRE_BANNER } from '../support/require-banner.ts';
import { NODE, ROOT } from '../support/where.ts';

const BUNDLES: Readonly<Record<string, string>> = {
  'otela-agent.mjs': 'agent/cli/main.ts',
  'otela-factory.mjs': 'factory/cli/main.ts',
  'stand-in-engine.mjs': 'test/support/engine.ts',
};

/** Into `directory`/bin; `directory`/out is for the output of jobs. */
export async function installPrograms(directory: string): Promise<void> {
  const bin = join(directory, 'bin');
  await mkdir(bin, { mode: 0o755 });
  for (const [name, entry] of Object.entries(BUNDLES))
    await build({
      bundle: true,
      platform: 'node',
      format: 'esm',
      target: 'node24',
      banner: { js: REQUIRE_BANNER },
      absWorkingDir: ROOT,
      entryPoints: [entry],
      outfile: join(bin, name),
    });
  await copyFile(NODE, join(bin, 'node'));
  await copyFile(join(ROOT, 'test/slurm/nvidia-smi'), join(bin, 'nvidia-smi'));
  for (const name of ['node', 'nvidia-smi', ...Object.keys(BUNDLES)]) await chmod(join(bin, name), 0o755);
  await mkdir(join(directory, 'out'));
  await chmod(join(directory, 'out'), 0o777);
}
