/** Faults of `otela up` on a real sshd and a real Slurm: each has words and a way on. */
import { existsSync, readdirSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { endAll, eventually } from '../support/processes.ts';
import { asUser, NO_SSHD } from '../support/ssh-host.ts';
import { answer, Laptop, MODEL, served } from './laptop.ts';

let laptop: Laptop;

beforeEach(async () => {
  if (NO_SSHD) return;
  laptop = await Laptop.open(
    'PartitionName=cpu Nodes=n4 MaxTime=60 PreemptMode=OFF\nPartitionName=small Nodes=n3 MaxTime=60\nPartitionName=lab Nodes=n1 MaxTime=60 AllowAccounts=lab\nEnforcePartLimits=ALL',
  );
});
afterEach(endAll);

it.skipIf(NO_SSHD)('a job that waits is told with its place in the queue, and ends by otela down', async () => {
  const other = await laptop.cluster.submit({
    sbatch: ['--gres=gpu:h100:2', '-w', 'n3', '--time=30'],
    script: 'sleep 300',
  });
  await other.reaches('RUNNING', 30_000);
  const up = laptop.up('--gpus', '2', '--partition', 'small', '--time', '5');
  await up.line(/job \d+ waits \(\w+, place 1 of 1 in the queue/, 60_000);
  const second = await laptop.ran('up', MODEL, '--host', 'cluster');
  expect(second).toMatchObject({ code: 0, out: expect.stringContaining('already up in another process') });
  expect((await laptop.ran('ls')).out).toMatch(/waits \(/);
  await up.line(/other partitions would start it earlier: .*normal \(now\).*--partition/, 90_000);
  expect((await laptop.ran('down')).out).toMatch(/is down/);
  expect(await up.end(30_000)).toMatchObject({ code: 0 });
  expect(laptop.cluster.command('squeue', '-h', '-o', '%j')).not.toContain('otela-up');
});

it.skipIf(NO_SSHD)(
  'wishes that the cluster cannot meet, and an engine that ends, are told before or with its last lines',
  async () => {
    expect(await laptop.ran('up', MODEL, '--host', 'login.invalid')).toMatchObject({ code: 69 });
    expect(await laptop.ran('down')).toMatchObject({ code: 0, out: expect.stringContaining('No model is up') });
    const refused = async (...args: string[]) => {
      const { code, out } = await laptop.ran('up', MODEL, '--host', 'cluster', ...args);
      expect(code).toBe(69);
      return out;
    };
    expect(await refused('--partition', 'gpus')).toMatch(/has no partition gpus[\s\S]*Its partitions are .*normal/);
    expect(await refused('--gpu', 'b200')).toMatch(/no b200[\s\S]*a100, h100, rtx3090/);
    expect(await refused('--time', '99:00:00')).toMatch(/allows at most 60 minutes[\s\S]*--time/);
    expect(await refused('--setup', 'module load no-such-thing')).toMatch(
      /line of --setup fails on cluster: module load no-such-thing/,
    );
    expect(await refused('--partition', 'lab', '--account', 'bio')).toMatch(/refuses the account bio/);
    const dying = ['--', 'bash', '-c', 'echo torch.OutOfMemoryError: CUDA out of memory; exit 1', '{{port}}'];
    expect(await refused(...dying)).toMatch(/ended before the model answered[\s\S]*CUDA out of memory[\s\S]*--gpus 2/);
  },
);

it.skipIf(NO_SSHD)('the command ends with the reason if its job ends while it serves', async () => {
  const up = laptop.up();
  await served(up);
  laptop.cluster.command('scancel', '--user', laptop.user.name);
  await up.line(/has ended \(CANCELLED\S*\)[\s\S]*The same command starts the next one/, 60_000);
  expect(await up.end(30_000)).toMatchObject({ code: 69 });
});

it.skipIf(NO_SSHD)(
  'a job of an earlier version of the agent is found and served through the relay of a later one',
  async () => {
    const up = laptop.up('--time', '10');
    await served(up);
    const job = laptop.cluster.command('squeue', '-h', '-o', '%i').trim();
    up.signal('SIGINT');
    expect(await up.end(30_000)).toMatchObject({ code: 0 });
    const cache = join(laptop.home, '.cache/otela');
    const made = readdirSync(cache).find((name) => /^otela-agent-[\w-]+$/.test(name)) ?? '';
    const later = join(laptop.home, 'later-agent');
    // Bytes after the program change its digest, which is its version here.
    await writeFile(later, Buffer.concat([await readFile(join(cache, made)), Buffer.from('later')]), { mode: 0o755 });
    const again = laptop.up('--agent', later);
    expect(await answer(await served(again))).toContain('stand-in');
    expect(laptop.cluster.command('squeue', '-h', '-o', '%i').trim()).toBe(job);
    expect(readdirSync(join(laptop.user.home, '.otela/agent'))).toHaveLength(2);
  },
);

it.skipIf(NO_SSHD)('a changed host key is refused', async () => {
  const up = laptop.up();
  await served(up);
  await laptop.host.down();
  await laptop.host.up(true);
  await up.line(/has another host key than before, so nothing was sent/, 60_000);
  const ls = await laptop.ran('ls');
  expect(ls.out).toMatch(/another host key/);
  expect((await laptop.ran('down')).code).toBe(69);
});

it.skipIf(NO_SSHD)('a full home directory is reported before anything is sent there', async () => {
  const df = join(laptop.user.home, 'bin/df');
  await writeFile(df, '#!/bin/sh\necho Filesystem\necho "/dev/home 1000 900 102400 90% /home"\n', { mode: 0o755 });
  const up = laptop.up();
  expect(await up.end(60_000)).toMatchObject({ code: 69 });
  expect(up.output).toMatch(/has 100 MiB free; otela needs 400 MiB\.\s+Remove files there/);
  expect(existsSync(join(laptop.user.home, '.otela'))).toBe(false);
});

it.skipIf(NO_SSHD)(
  'a login node that kills long processes moves the relay into the job, and a preempted job ends with its reason',
  async () => {
    const up = laptop.up('--partition', 'preempt-cancel', '--gpu', 'h100', '--gpus', '2');
    const access = await served(up);
    const steps = () => laptop.cluster.command('squeue', '--steps', '-h', '-o', '%j');
    expect(steps()).not.toContain('otela-agent');
    expect(asUser(laptop.user, "pkill -KILL -f 'otela-agent [r]elay'")).toMatchObject({ code: 0 });
    await up.line(/connection is lost; the job continues/, 60_000);
    await up.line(/cluster ends long processes: moving the relay into job \d+/, 60_000);
    await up.line(/connected to cluster again/, 60_000);
    expect(steps()).toContain('otela-agent');
    await eventually('an answer through the new relay', 30_000, async () =>
      (await answer(access)).includes('stand-in') ? true : undefined,
    );
    await laptop.cluster.submit({ sbatch: ['--gres=gpu:h100:2', '-w', 'n3', '--time=5'], script: 'sleep 300' });
    await up.line(/has ended \((?:PREEMPTED|CANCELLED|COMPLETED)[^)]*\)/, 90_000);
    expect(await up.end(30_000)).toMatchObject({ code: 69 });
  },
);
