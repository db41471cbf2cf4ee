import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { JobEnd } from '../../../agent/host/job-end.ts';
import { promise } from '../../support/patience.ts';
import { freePort } from '../../support/processes.ts';
import { engineCommand, FOR_EVER, fakeTool, NODE, scratch, startAgent } from '../support/harness.ts';

describe('in a Slurm job', () => {
  const job = { SLURM_JOB_ID: '4711', SLURM_JOB_PARTITION: 'normal', SLURMD_NODENAME: 'n1' };

  it('tells job, node, partition and end, and is volatile', async () => {
    const directory = scratch();
    fakeTool(directory, 'squeue', '[ "$TZ" = UTC ] && [ "$3" = 4711 ] && echo 2099-01-02T03:04:05');
    const run = startAgent(directory, [], job);
    await run.until(() => run.tunnels[0]?.latest?.job?.ends_at !== undefined);
    expect(run.tunnel.latest).toMatchObject({
      tier: 'volatile',
      job: { id: '4711', node: 'n1', partition: 'normal', ends_at: '2099-01-02T03:04:05.000Z' },
    });
  });

  it('asks for its own task where the id is that of a whole array', async () => {
    const directory = scratch();
    fakeTool(directory, 'squeue', '[ "$3" = 4000_7 ] && echo 2099-01-02T03:04:05');
    const array = { SLURM_ARRAY_JOB_ID: '4000', SLURM_ARRAY_TASK_ID: '7' };
    const run = startAgent(directory, [], { ...job, ...array });
    await run.until(() => run.tunnels[0]?.latest?.job?.ends_at?.startsWith('2099') ?? false);
    expect(run.tunnel.latest?.job?.id).toBe('4711');
  });

  it.each([
    ['NONE', undefined],
    ['2099-01-02T03:04:05\n2099-01-02T03:04:05', '2099-01-02T03:04:05.000Z'],
    ['2099-01-02T03:04:05\n2098-01-02T03:04:05', '2100-01-01T00:00:00.000Z'],
    ['garbage', '2100-01-01T00:00:00.000Z'],
  ])('takes squeue’s answer "%s" for what it is worth', async (answer, ends) => {
    const directory = scratch();
    fakeTool(directory, 'squeue', `printf '${answer.replace(/\n/g, '\\n')}\\n'; touch ${directory}/asked`);
    // The environment's value holds until slurmctld gives another one.
    const run = startAgent(directory, [], { ...job, SLURM_JOB_END_TIME: String(Date.UTC(2100, 0, 1) / 1000) });
    await run.until(() => existsSync(join(directory, 'asked')) && run.tunnels[0]?.latest !== undefined);
    await run.until(() => run.tunnels[0]?.latest?.job?.ends_at === ends);
  });

  it('joins all the same when squeue fails, and says so once', async () => {
    const directory = scratch();
    fakeTool(directory, 'squeue', 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1');
    const run = startAgent(directory, [], job);
    await run.until(() => run.stderr.text.includes('Unable to contact'));
    await run.state('JOIN');
    expect(run.tunnel.latest?.job).toEqual({ id: '4711', node: 'n1', partition: 'normal' });
  });

  it('drains --drain-before the end of the job and exits with 0', async () => {
    const directory = scratch();
    const ends = new Date(Date.now() + 30_000).toISOString().slice(0, 19);
    fakeTool(directory, 'squeue', `echo ${ends}`);
    const run = startAgent(directory, ['--drain-before', '29s'], job);
    expect(await run.exit).toBe(0);
    expect(run.tunnel.states).toEqual(['JOIN', 'DOWN', 'LEFT']);
    expect(run.stderr.text).toContain('the job ends in');
  });

  it('does not drain when the limit was raised meanwhile', async () => {
    const raised = Promise.withResolvers<void>();
    const drains: number[] = [];
    let answers = 0;
    const askEnd = async () => {
      const ends = new Date(answers++ === 0 ? Date.now() + 29_000 : '2099-01-01');
      return { kind: 'known' as const, ends };
    };
    const end = new JobEnd({
      job: { ends: undefined, askEnd },
      run: async () => ({ ok: true, stdout: '' }),
      before: () => 28_000,
      onChange: (ends) => ends?.getFullYear() === 2099 && raised.resolve(),
      onDue: (leftMs) => drains.push(leftMs),
      log: () => {},
      now: () => Date.now(),
      random: () => 0,
    });
    const over = end.open();
    await raised.promise;
    await new Promise(setImmediate); // it acts on the answer
    end.close();
    await over;
    expect(drains).toEqual([]);
  });

  it.each([
    ['is asked for the first time', ''],
    ['has answered before', '[ -e asked ] || { touch asked; echo $ENDS; exit; }; '],
  ])('drains in time where squeue hangs and %s', async (_when, first) => {
    const directory = scratch();
    // Longer than the agent waits for any tool, and ended with this test.
    const pids = join(directory, 'pids');
    fakeTool(directory, 'squeue', `cd ${directory}; ${first}echo $$ >> ${pids}; exec sleep 60`);
    onTestFinished(() => {
      for (const pid of readFileSync(pids, 'utf8').trim().split('\n')) process.kill(Number(pid), 'SIGKILL');
    });
    const [leadS, slackS] = [promise(17_000), promise(5_000)].map((ms) => Math.ceil(ms / 1000)) as [number, number];
    const endsAt = Math.floor(Date.now() / 1000) + leadS + 3;
    const ends = new Date(endsAt * 1000).toISOString().slice(0, 19);
    const times = { SLURM_JOB_END_TIME: String(endsAt), ENDS: ends };
    const run = startAgent(directory, ['--drain-before', `${leadS}s`, '--drain-timeout', '0s'], { ...job, ...times });
    expect(await run.exit).toBe(0);
    expect(Date.now()).toBeGreaterThanOrEqual((endsAt - leadS) * 1000);
    expect(Date.now()).toBeLessThan((endsAt - leadS + slackS) * 1000);
    expect(run.stderr.text).toContain('the job ends in');
  });

  it('waits for a slow squeue where the end that the environment tells was over at the start', async () => {
    const directory = scratch();
    const go = join(directory, 'go');
    execFileSync('mkfifo', [go]);
    fakeTool(directory, 'squeue', `read line < ${go}; echo 2099-01-01T00:00:00`);
    const run = startAgent(directory, ['--drain-before', '30s'], { ...job, SLURM_JOB_END_TIME: '1700000000' });
    await run.state('JOIN');
    await writeFile(go, 'answer\n'); // blocks until the tool reads
    await run.until(() => run.tunnels[0]?.latest?.job?.ends_at?.startsWith('2099') ?? false);
    expect(run.tunnel.states).toEqual(['JOIN']);
  });

  it.each([
    ['COMPLETING Reason=None PreemptTime=None', 'cancelled'],
    ['COMPLETING Reason=TimeLimit PreemptTime=None', 'time-limit'],
    ['RUNNING Reason=None PreemptTime=2026-11-25T09:30:16', 'preempted'],
    ['RUNNING Reason=None PreemptTime=None', 'SIGTERM'],
  ])('says with its end what scontrol tells of the job: %s', async (state, leaving) => {
    const directory = scratch();
    fakeTool(directory, 'scontrol', `[ "$2" = job ] && echo "JobId=4711 JobState=${state}"`);
    const run = startAgent(directory, [], job);
    await run.state('JOIN');
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(run.tunnel.latest).toMatchObject({ state: 'LEFT', leaving });
  });

  it('leaves in time where scontrol hangs', async () => {
    const directory = scratch();
    const pid = join(directory, 'pid');
    fakeTool(directory, 'scontrol', `[ "$2" = config ] || { echo $$ > ${pid}; exec sleep 60; }`);
    onTestFinished(() => void process.kill(Number(readFileSync(pid, 'utf8')), 'SIGKILL'));
    const run = startAgent(directory, [], job);
    await run.state('JOIN');
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(run.tunnel.latest).toMatchObject({ state: 'LEFT', leaving: 'SIGTERM' });
  });

  it('registers one session with all GPUs on rank 0 of an engine over two nodes', async () => {
    const directory = scratch();
    fakeTool(directory, 'nvidia-smi', '[ "$1" = -L ] || echo "0, GPU-1, NVIDIA GH200 120GB, 97871"');
    const port = await freePort();
    const run = startAgent(directory, ['--', ...engineCommand(port, '--nnodes', '2', '--node-rank', '0')], job);
    await run.state('SERVING');
    expect(run.tunnel.latest?.hardware.gpus).toEqual([
      { class: 'GH200', name: 'NVIDIA GH200 120GB', vram_mib: 97_871, count: 2 },
    ]);
  });

  it('supervises without a session on rank 1, and shows its engine’s death in the exit code', async () => {
    const args = ['--', NODE, '-e', 'setTimeout(() => process.exit(4), 200)', '--', '--nnodes=2', '--node-rank=1'];
    const run = startAgent(scratch(), args, job);
    expect(await run.exit).toBe(70);
    expect(run.tunnels).toHaveLength(0);
    expect(run.stderr.text).toContain('rank 0 registers');
  });

  it('keeps its part of the engine on rank 1 while rank 0 drains', async () => {
    const args = ['--drain-timeout', '200ms', '--span-nodes', '--', NODE, '-e', `console.log('up'); ${FOR_EVER}`];
    const run = startAgent(scratch(), args, { ...job, SLURM_PROCID: '1', SLURM_STEP_NUM_NODES: '2' });
    await run.until(() => run.stdout.text.includes('up'));
    const before = performance.now();
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(performance.now() - before).toBeGreaterThanOrEqual(190);
  });
});

describe('whatever runs it', () => {
  it('--ends-at is when it ends: told, and drained for', async () => {
    const ends = new Date(Date.now() + 20_000).toISOString();
    const run = startAgent(scratch(), ['--ends-at', ends, '--drain-before', '18s']);
    expect(await run.exit).toBe(0);
    expect(run.tunnel.latest).toMatchObject({ job: { id: '-', ends_at: ends }, leaving: 'time-limit' });
  });

  it('--ends-at counts before what the batch system says', async () => {
    const directory = scratch();
    fakeTool(directory, 'squeue', 'echo 2099-01-02T03:04:05');
    const run = startAgent(directory, ['--ends-at', '2098-01-01T00:00:00+01:00'], { SLURM_JOB_ID: '4711' });
    await run.state('JOIN');
    expect(run.tunnel.latest?.job).toMatchObject({ id: '4711', ends_at: '2097-12-31T23:00:00.000Z' });
  });

  it.each(['tomorrow', '2027-01-01', '2027-01-01T00:00:00', '+2'])('refuses --ends-at %s', async (text) => {
    const run = startAgent(scratch(), ['--ends-at', text]);
    expect(await run.exit).toBe(2);
    expect(run.stderr.text).toContain('ends-at');
  });
});
