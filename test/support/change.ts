/**
 * Changed files, as paths from the root: since main, for a developer; since the last run in which all tests passed, for
 * CI.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ROOT } from './where.ts';

/** Written by `npm run test:all`; commit it after the run. */
const TESTED = join(ROOT, 'test/tested.json');
const testedSchema = z.object({
  /** The commit on which all tests passed. */
  commit: z.string().regex(/^[0-9a-f]{40}$/),
});

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
 * Undefined: not known, because no full run is recorded, or its commit is not in this clone's history, as in a shallow
 * clone.
 */
export function changedSinceTested(): string[] | undefined {
  if (!existsSync(TESTED)) return undefined;
  const { commit } = testedSchema.parse(JSON.parse(readFileSync(TESTED, 'utf8')));
  const isKnown = spawnSync('git', ['merge-base', '--is-ancestor', commit, 'HEAD'], { cwd: ROOT }).status === 0;
  return isKnown ? differing(commit) : undefined;
}

/**
 * Records the current commit after a full run without failures. Does nothing if files are uncommitted, because the
 * tests saw them.
 */
export function rememberTested(): void {
  if (git('status', '--porcelain').length > 0)
    return console.log('files are not committed: test/tested.json stays as it is');
  writeFileSync(TESTED, `${JSON.stringify({ commit: git('rev-parse', 'HEAD')[0] })}\n`);
  console.log(
    'test/tested.json names this commit: commit it, and CI runs of the long form only what changes from here on can reach',
  );
}
