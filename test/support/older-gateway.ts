/** Builds the gateway of an older commit from this clone's history. */
import { execFileSync } from 'node:child_process';
import { mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { errorText } from '../../shared/text/error-text.ts';
import { installGateway } from './as-version.ts';
import { ROOT } from './where.ts';

/** The file with the messages between two gateways. The commit before its last change uses an older version of them. */
const LANGUAGE = 'gateway/hosts/node/replication/messages.ts';
const HISTORY_MAX_BYTES = 512 * 1024 * 1024;

const git = (...args: string[]): Buffer =>
  execFileSync('git', args, { cwd: ROOT, maxBuffer: HISTORY_MAX_BYTES, stdio: ['ignore', 'pipe', 'pipe'] });

/**
 * Builds it below `directory`.
 * @returns the program's file and the commit; or the reason, if this clone lacks the history
 */
export async function olderGateway(directory: string): Promise<{ file: string; commit: string } | string> {
  let commit: string;
  let files: Buffer;
  try {
    const changed = git('log', '-1', '--format=%H', '--', LANGUAGE).toString().trim();
    commit = git('rev-parse', `${changed}^`).toString().trim();
    if (git('ls-tree', commit, LANGUAGE).length === 0) return `no commit before ${changed} has ${LANGUAGE}`;
    files = git('archive', '--format=tar', commit);
  } catch (error) {
    return `this clone has no history to build an older gateway from: ${errorText(error)}`;
  }
  const root = join(directory, 'clone');
  await mkdir(root, { recursive: true });
  execFileSync('tar', ['-x', '-C', root], { input: files });
  await symlink(join(ROOT, 'node_modules'), join(root, 'node_modules'));
  const file = join(directory, 'gateway/dist/otela-gateway.js');
  await installGateway(file, '0.0.1', root);
  return { file, commit };
}
