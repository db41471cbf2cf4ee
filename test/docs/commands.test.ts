/** What `npm ci` alone gives: the commands of the clone, by their names. */
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ROOT } from '../support/where.ts';

it.each(['otela', 'otela-agent', 'otela-gateway', 'otela-plan', 'otela-factory'])(
  'npm ci puts %s into node_modules/.bin',
  (name) => {
    // A PATH without Node: the command has to find the one that npm ci installed, from any directory.
    const run = spawnSync(join(ROOT, 'node_modules/.bin', name), ['--version'], {
      cwd: tmpdir(),
      env: { PATH: '/usr/bin:/bin' },
      encoding: 'utf8',
    });
    expect([run.status, run.stdout.trim()], run.stderr).toEqual([0, expect.stringMatching(/\d+\.\d+\.\d+/)]);
  },
);
