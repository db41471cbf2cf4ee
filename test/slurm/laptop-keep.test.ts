/** `otela up --keep`: jobs follow each other on a real Slurm, and a client that asks all the time sees no failure. */
import { afterEach, expect, it } from 'vitest';
import { endAll, eventually } from '../support/processes.ts';
import { NO_SSHD } from '../support/ssh-host.ts';
import { answer, Laptop, type Served, served } from './laptop.ts';

afterEach(endAll);

/** Asks again and again until `end` is called, which returns the number of answers and the failures. */
function steadyClient(access: Served) {
  const failures: string[] = [];
  let [asked, isOver] = [0, false];
  const done = (async () => {
    for (; !isOver; asked++) {
      const text = await answer(access).catch(String);
      if (!text.includes('stand-in')) failures.push(`${new Date().toISOString()} ${text.slice(0, 300)}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  return {
    end: async () => {
      isOver = true;
      await done;
      return { asked, failures };
    },
  };
}

it.skipIf(NO_SSHD)('jobs of four minutes follow each other without a failed request', async () => {
  const laptop = await Laptop.open();
  const { cluster } = laptop;
  const up = laptop.up('--time', '4', '--keep', '20m');
  const access = await served(up);
  const client = steadyClient(access);
  const jobs = () => cluster.command('squeue', '-h', '-o', '%i %T %r').trim().split('\n');
  const [first = ''] = jobs()
    .map((line) => line.split(' ')[0] ?? '')
    .toSorted();
  await eventually('a chain of successors in Slurm', 90_000, async () =>
    jobs().filter((line) => line.includes('PENDING Dependency')).length === 3 ? true : undefined,
  );
  // Two hand-overs, about two minutes apart.
  await up.line(new RegExp(`job ${first} finishes its requests and ends`), 240_000);
  await up.line(new RegExp(`job ${Number(first) + 1} finishes its requests and ends`), 240_000);
  const { asked, failures } = await client.end();
  expect(failures).toEqual([]);
  expect(asked).toBeGreaterThan(500);
  // If a job ends before its time, the next one starts immediately.
  cluster.command('scancel', String(Number(first) + 2));
  await up.line(/may start now, because the one before it has ended/, 60_000);
  await eventually('an answer of the next job', 60_000, async () =>
    (await answer(access)).includes('stand-in') ? true : undefined,
  );
  expect((await laptop.ran('down')).code).toBe(0);
  expect(await up.end(30_000)).toMatchObject({ code: 0 });
  expect(cluster.command('squeue', '-h', '-o', '%i').trim()).toBe('');
});
