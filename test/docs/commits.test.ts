/** Which commits are checked, and how their messages are judged. */
import { spawnSync } from 'node:child_process';
import { afterEach, expect, it } from 'vitest';
import { checkBranch, messageFault } from '../../packaging/commits.ts';
import { endAll, temporaryDirectory } from '../support/processes.ts';

afterEach(endAll);

it.each([
  ['gateway: settle a hold once\n\nA retry charged it twice.', undefined],
  ['docs, test: access a page\n\nWhy.', undefined],
  ["Merge branch 'a'", undefined],
  ['gateway: settle a hold once', 'the body is missing'],
  ['gateway: settle a hold once\nA retry.', 'an empty line is missing'],
  ['Settle a hold once\n\nWhy.', 'no scope'],
  ['gateway: settled a hold\n\nWhy.', '"settled" is not an imperative'],
  ['gateway: settles a hold\n\nWhy.', '"settles" is not an imperative'],
  ['gateway: a hold is settled once\n\nWhy.', '"a" is not an imperative'],
  ['gateway: Settle a hold\n\nWhy.', '"Settle" is not an imperative'],
  [`gateway: settle ${'x'.repeat(60)}\n\nWhy.`, 'has 76 characters'],
])('%j', (message, fault) => {
  expect(messageFault(message)).toEqual(fault === undefined ? undefined : expect.stringContaining(fault));
});

function git(cwd: string, ...args: string[]): void {
  const env = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_SYSTEM: '/dev/null' };
  const all = ['-c', 'user.name=A', '-c', 'user.email=a@example.org', '-c', 'init.defaultBranch=main', ...args];
  const { status, stderr } = spawnSync('git', all, { cwd, env, encoding: 'utf8' });
  if (status !== 0) throw new Error(`git ${args.join(' ')}: ${stderr}`);
}

it('checks the commits of a branch, those of main not, and says so if it cannot', async () => {
  const directory = await temporaryDirectory('otela-commits');
  expect(checkBranch(directory)).toEqual({ about: 'no commit was checked: this is not a clone', faults: [] });
  git(directory, 'init', '--quiet');
  const commit = (message: string) => git(directory, 'commit', '--quiet', '--allow-empty', '--message', message);
  commit('An old one without a scope');
  expect(checkBranch(directory)).toEqual({ about: '0 commits since main', faults: [] });
  git(directory, 'switch', '--quiet', '--create', 'topic');
  commit('test: add a case\n\nIt was missing.');
  commit('Added a case');
  expect(checkBranch(directory)).toEqual({
    about: '2 commits since main',
    faults: [expect.stringMatching(/^\w+ Added a case: the subject has no scope/)],
  });
  const shallow = await temporaryDirectory('otela-commits-shallow');
  git(shallow, 'clone', '--quiet', '--depth', '1', `file://${directory}`, '.');
  expect(checkBranch(shallow)).toEqual({ about: 'no commit was checked: this clone has no history', faults: [] });
});
