/** `node bench/built.ts FILE …`: builds dist/ and runs that bench with its programs, which are what people install. */
import { spawnSync } from 'node:child_process';
import { BUILT_VARIABLE, NODE, ROOT } from '../test/support/where.ts';

function run(args: string[], stdout: 'ignore' | 'inherit'): number {
  const env = { ...process.env, [BUILT_VARIABLE]: '1' };
  const { status, error } = spawnSync(NODE, args, { cwd: ROOT, env, stdio: ['inherit', stdout, 'inherit'] });
  if (error !== undefined) throw error;
  return status ?? 1; // Ended by a signal.
}

process.exitCode = run(['build.ts'], 'ignore') || run(process.argv.slice(2), 'inherit');
