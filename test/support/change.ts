/** Changed files, as paths from the root: since the local main, for a developer; since the main of `origin`, for CI. */
import { execFileSync, spawnSync } from 'node:child_process';
import { ROOT } from './where.ts';

const git = (...args: string[]) =>
  execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', maxBuffer: 1 << 26 })
    .split('\n')
    .filter((line) => line !== '');
const differing = (base: string) => [
  ...git('diff', '--name-only', '--no-renames', base),
  ...git('ls-files', '--others', '--exclude-standard'),
];

/** Includes uncommitted and new files. */
export function changedSinceMain(): string[] {
  return differing(git('merge-base', 'HEAD', 'main')[0] ?? 'main');
}

/**
 * Undefined: not known, because there is no main of `origin`, it is this commit, or its common commit is not in this
 * clone, as in a shallow one.
 */
export function changedSinceOrigin(): string[] | undefined {
  const { status, stdout } = spawnSync('git', ['merge-base', 'HEAD', 'origin/main'], { cwd: ROOT, encoding: 'utf8' });
  const base = stdout.trim();
  return status === 0 && base !== git('rev-parse', 'HEAD')[0] ? differing(base) : undefined;
}
