/** Jobs without a batch system, with a real shell. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { endScript, parseProcessList, processListScript, startScript } from '../../up/job/process-list.ts';
import { eventually, temporaryDirectory } from '../support/processes.ts';

const bash = (home: string, script: string, input = '') =>
  execFileSync('bash', ['-c', script], { input, encoding: 'utf8', env: { HOME: home, PATH: process.env.PATH ?? '' } });

it('a job runs in its own process group, is listed, ends by TERM after its engine, and keeps its exit code', async () => {
  const home = await temporaryDirectory('otela-process');
  const at = '"$HOME"/run';
  const start = (script: string) => /^job=(\d+)$/m.exec(bash(home, startScript(at), script))?.[1] ?? '';
  const list = () => parseProcessList(bash(home, processListScript(at)));
  expect(list()).toEqual([]);
  const first = start('trap "sleep 0.5; echo drained; exit 3" TERM\necho "job $OTELA_UP_JOB in $PWD"\nsleep 60 & wait');
  const second = start('exit 7');
  expect(Number(second)).toBeGreaterThan(Number(first));
  await eventually('the end of the second', 10_000, () => list()[1]?.state === 'ended' || undefined);
  expect(list()).toMatchObject([
    { id: first, state: 'running' },
    { id: second, state: 'ended', reason: 'exit code 7' },
  ]);
  bash(home, endScript(at, [first]));
  expect(list()[0]?.state).toBe('running');
  await eventually('the end of the first', 10_000, () => list()[0]?.state === 'ended' || undefined);
  expect(list()[0]?.reason).toBe('exit code 3');
  expect(readFileSync(join(home, 'run', `${first}.log`), 'utf8')).toBe(`job ${first} in ${home}\ndrained\n`);
});

it('a number of a process that belongs to another program now is not the job', async () => {
  const home = await temporaryDirectory('otela-process');
  bash(home, `cd; mkdir run; echo "${process.pid} 1" >run/17.pid; touch run/17.sh`);
  expect(parseProcessList(bash(home, processListScript('"$HOME"/run')))).toMatchObject([
    { id: '17', state: 'ended', reason: 'killed' },
  ]);
  bash(home, endScript('"$HOME"/run', ['17'])); // this process is alive afterwards
  expect(() => endScript('x', ['1; rm -rf ~'])).toThrow(RangeError);
  expect(existsSync(join(home, 'run'))).toBe(true);
});
