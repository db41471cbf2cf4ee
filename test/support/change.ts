/**
 * Lists changed files, as paths from the root: for a developer those since the local main, for CI those since the main
 * of `origin`.
 */
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
 * Returns undefined if the changes are unknown: `origin` has no main, its main is this commit, or this clone lacks the
 * common commit, as a shallow clone does.
 */
export function changedSinceOrigin(): string[] | undefined {
  const { status, stdout } = spawnSync('git', ['merge-base', 'HEAD', 'origin/main'], { cwd: ROOT, encoding: 'utf8' });
  const base = stdout.trim();
  return status === 0 && base !== git('rev-parse', 'HEAD')[0] ? differing(base) : undefined;
}
