/** Agent and mock engine as single files: on a small machine sixteen of each must start quickly, many times. */
import { join } from 'node:path';
import { build } from 'esbuild';
import { temporaryDirectory } from '../support/processes.ts';
import { REQUIRE_BANNER } from '../support/require-banner.ts';
import { ROOT } from '../support/where.ts';

export interface Programs {
  agent: string;
  engine: string;
}

export async function buildPrograms(): Promise<Programs> {
  const directory = await temporaryDirectory('otela-chaos-bin');
  const programs = { agent: join(directory, 'agent.mjs'), engine: join(directory, 'engine.mjs') };
  const bundle = (entry: string, outfile: string) =>
    build({
      absWorkingDir: ROOT,
      entryPoints: [entry],
      outfile,
      bundle: true,
      platform: 'node',
      format: 'esm',
      target: 'node24',
      banner: { js: REQUIRE_BANNER },
      logLevel: 'error',
    });
  await Promise.all([bundle('agent/cli/main.ts', programs.agent), bundle('test/support/engine.ts', programs.engine)]);
  return programs;
}
