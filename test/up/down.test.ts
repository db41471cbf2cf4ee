/** What `otela down` does on a host. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { endOnHost, endRun } from '../../up/cli/down-command.ts';
import { LocalGateway } from '../../up/gateway/local-gateway.ts';
import type { Host } from '../../up/host/host.ts';
import { takeRunLock } from '../../up/state/run-lock.ts';
import { type Run, Runs } from '../../up/state/runs.ts';
import { endAll, temporaryDirectory } from '../support/processes.ts';

afterEach(async () => {
  vi.unstubAllEnvs();
  await endAll();
});

it('a job that --keep submits while down runs is cancelled, too', async () => {
  const lists = ['job=1|RUNNING|None|', 'job=1|CANCELLED|None|\njob=2|PENDING|None|', 'job=2|CANCELLED|None|'];
  const scripts: string[] = [];
  const output = async (script: string) => {
    scripts.push(script);
    return script.includes('squeue') ? (lists.shift() ?? '') : '';
  };
  const run: Run = { id: 'a1', host: 'cluster', model: 'm', started: '2026-11-27T10:00:00Z' };
  await endOnHost({ output } as unknown as Host, run, { socketOf: () => '/nonexistent' }, false);
  expect(scripts.filter((script) => script.startsWith('scancel'))).toEqual([
    'scancel --quiet 1 || true',
    'scancel --quiet 2 || true',
  ]);
  expect(lists).toEqual([]);
});

it('ends the connection of ssh, unless a process serves another run by it', async () => {
  const home = await temporaryDirectory('otela-laptop');
  const calls = join(home, 'calls');
  await writeFile(join(home, 'ssh'), `#!/bin/sh\nprintf '%s ' "$@" | tr '\\n' ' ' >>${calls}; echo >>${calls}\n`, {
    mode: 0o755,
  });
  vi.stubEnv('HOME', home);
  vi.stubEnv('PATH', `${home}:${process.env.PATH}`);
  await mkdir(join(home, 'state/runs'), { recursive: true });
  const runs = new Runs(join(home, 'state'));
  const [one, two] = ['one', 'two'].map((model) => runs.create('cluster', model, new Date()));
  if (one === undefined || two === undefined) throw new Error('a run is missing');
  const gateway = new LocalGateway(join(home, 'state'));
  const stops = async () => (await readFile(calls, 'utf8')).split('\n').filter((line) => line.startsWith('-O stop'));
  const lock = await takeRunLock(runs.socketOf(two), () => {});
  await endRun(one, runs, gateway, false);
  expect(await stops()).toEqual([]);
  lock?.release();
  await endRun(two, runs, gateway, false);
  expect(await stops()).toHaveLength(1);
});
