/** The commands of the clone, by name, after only `npm ci`. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { NODE, ROOT } from '../support/where.ts';

it.each(['otela', 'otela-agent', 'otela-gateway', 'otela-plan', 'otela-factory'])(
  'npm ci puts %s into node_modules/.bin',
  (name) => {
    // A PATH without Node 24, if npm ci fetched one: the command must find it from any directory.
    const fetched = existsSync(join(ROOT, 'node_modules/.bin/node'));
    const run = spawnSync(join(ROOT, 'node_modules/.bin', name), ['--version'], {
      cwd: tmpdir(),
      env: { PATH: `${fetched ? '' : `${dirname(NODE)}:`}/usr/bin:/bin` },
      encoding: 'utf8',
    });
    expect([run.status, run.stdout.trim()], run.stderr).toEqual([0, expect.stringMatching(/\d+\.\d+\.\d+/)]);
  },
);
