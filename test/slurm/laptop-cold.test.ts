/** `otela up --cold`: a request starts the job on a real Slurm, and its end follows the idle time. */
import { afterEach, expect, it } from 'vitest';
import { endAll, eventually } from '../support/processes.ts';
import { NO_SSHD } from '../support/ssh-host.ts';
import { answer, Laptop, served } from './laptop.ts';

afterEach(endAll);

it.skipIf(NO_SSHD)('a request waits for the job that it starts; after the idle time there is no job', async () => {
  const laptop = await Laptop.open();
  const { cluster } = laptop;
  const queue = () => cluster.command('squeue', '-h', '-o', '%i').trim();
  const up = laptop.up('--cold', '--idle', '5s');
  const access = await served(up);
  expect(queue()).toBe('');
  for (const _ of [1, 2]) {
    expect(await answer(access)).toContain('stand-in');
    expect(queue()).toMatch(/^\d+$/);
    await eventually('the end of the idle job', 60_000, () => (queue() === '' ? true : undefined));
  }
  expect((await laptop.ran('down', '--purge')).code).toBe(0);
  expect(await up.end(30_000)).toMatchObject({ code: 0 });
});
