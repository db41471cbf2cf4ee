/** Builds the gateway as it was before the last change of a file, from this clone's history. */
import { execFileSync } from 'node:child_process';
import { mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { installGateway } from './as-version.ts';
import { ROOT } from './where.ts';

const HISTORY_MAX_BYTES = 512 * 1024 * 1024;

const git = (...args: string[]): Buffer =>
  execFileSync('git', args, { cwd: ROOT, maxBuffer: HISTORY_MAX_BYTES, stdio: ['ignore', 'pipe', 'pipe'] });

interface GatewayBeforeOptions {
  /** Path from the root of the clone. */
  changed: string;
  /** The program's file, as for `installGateway`. */
  file: string;
  /** An empty directory for the older clone. */
  directory: string;
}

/**
 * @returns the commit
 * @throws Error if this clone lacks the history
 */
export async function installGatewayBefore({ changed, file, directory }: GatewayBeforeOptions): Promise<string> {
  const last = git('log', '-1', '--format=%H', '--', changed).toString().trim();
  const commit = git('rev-parse', `${last}^`).toString().trim();
  const root = join(directory, 'clone');
  await mkdir(root, { recursive: true });
  execFileSync('tar', ['-x', '-C', root], { input: git('archive', '--format=tar', commit) });
  await symlink(join(ROOT, 'node_modules'), join(root, 'node_modules'));
  await installGateway(file, '0.0.1', root);
  return commit;
}
