/** The list of a run's jobs as a part of the check of a host. */
import { execFileSync } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { foundJobsScript, parseFoundJobs } from '../../up/job/end-jobs.ts';
import { checkScript } from '../../up/site/check-script.ts';
import type { Run } from '../../up/state/runs.ts';
import { endAll, temporaryDirectory } from '../support/processes.ts';

afterEach(endAll);

const RUN: Run = { id: 'abcd1234', host: 'cluster', model: 'm', started: '2026-11-27T10:00:00.000Z' };

/** Runs the check on a machine with this squeue. */
async function checked(squeue: string): Promise<string> {
  const home = await temporaryDirectory('otela-check');
  await mkdir(join(home, 'bin'));
  for (const [name, script] of Object.entries({ squeue, sinfo: 'exit 1', sacctmgr: 'exit 1' }))
    await writeFile(join(home, 'bin', name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const run = join(home, '.otela/run', RUN.id);
  await mkdir(run, { recursive: true });
  await writeFile(join(run, '1764237000.pid'), '1 1764237000\n');
  await writeFile(join(run, '1764237000.exit'), '1\n');
  const env = { HOME: home, PATH: `${join(home, 'bin')}:/usr/bin:/bin` };
  return execFileSync('bash', ['-c', checkScript([], foundJobsScript(RUN))], { env, encoding: 'utf8' });
}

it('the check lists the jobs of Slurm and the processes, and the run says which of them count', async () => {
  const out = await checked(`[ "$TZ" = UTC ] && echo 'job=17|RUNNING|None|2026-11-27T10:00:00'`);
  expect(parseFoundJobs(RUN, out)).toMatchObject([{ id: '17', state: 'running' }]);
  expect(parseFoundJobs({ ...RUN, batch: 'none' }, out)).toMatchObject([{ id: '1764237000', state: 'ended' }]);
});

it('a Slurm that does not list the jobs is an error, because the run may have one', async () => {
  const out = await checked('echo slurm_load_jobs error >&2; exit 1');
  expect(() => parseFoundJobs(RUN, out)).toThrow(/does not list your jobs[\s\S]*squeue/);
  expect(parseFoundJobs({ ...RUN, batch: 'none' }, out)).toHaveLength(1);
});
