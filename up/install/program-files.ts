/** The other programs of this installation: next to this one in a build or a release, otherwise those of the clone. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UpError } from '../up-error.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));
/** Only a clone has this file at this place. */
const CLONE = fileURLToPath(new URL('../../', import.meta.url));
const isClone = existsSync(join(CLONE, 'build.ts')) && HERE.endsWith('/up/install/');

/** Command line of the gateway's program. */
export function gatewayCommand(): string[] {
  return [process.execPath, isClone ? join(CLONE, 'gateway/cli/main.ts') : join(HERE, 'otela-gateway.js')];
}

/** The agent's code for a single file. In a clone it is built if it is missing. @throws UpError */
export async function agentBundle(): Promise<string> {
  const file = isClone ? join(CLONE, 'dist/otela-agent.cjs') : join(HERE, 'otela-agent.cjs');
  if (isClone && !existsSync(file)) await run([process.execPath, join(CLONE, 'build.ts'), 'commands']);
  if (existsSync(file)) return file;
  throw new UpError(`${file} is missing.`, 'Give the agent of a release with --agent FILE, or install otela again.');
}

/** The page of the gateway; in a clone it is built if it is missing. */
export async function buildPage(): Promise<void> {
  if (isClone && !existsSync(join(CLONE, 'dist/dashboard/index.html')))
    await run([process.execPath, join(CLONE, 'build.ts'), 'dashboard']);
}

/** Directory for files that can be fetched or made again. */
export function cacheDirectory(): string {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'otela');
}

async function run([file = '', ...args]: readonly string[]): Promise<void> {
  const child = spawn(file, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  const code = await new Promise((resolve, reject) => child.once('error', reject).once('exit', resolve));
  if (code !== 0) throw new UpError('The build of this clone failed.', 'Run npm ci, then otela up again.');
}
