/** `otela up`, `ls`, `logs` and `down` against a real sshd that forbids forwarding, and a real Slurm. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { endAll, eventually } from '../support/processes.ts';
import { asUser, createUser, NO_SSHD, noProcessOf } from '../support/ssh-host.ts';
import { answer, Laptop, MODEL, served } from './laptop.ts';

afterEach(endAll);

/** Directories and files below a directory that others can read. The output of jobs is excepted: Slurm creates it. */
function openFiles(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' }).filter((name) => {
    if (/^run\/\w+\/\d+\.log$/.test(name)) return false;
    const stat = statSync(join(directory, name));
    return (stat.isFile() || stat.isDirectory()) && (stat.mode & 0o077) !== 0;
  });
}

/** What another user of the login node and of the compute node can read, see and call. */
async function strangersGetNothing({ home, user }: Laptop, job: string): Promise<void> {
  const stranger = await createUser();
  const as = (script: string) => asUser(stranger, script);
  expect(as(`ls ${user.home}/.otela`)).toMatchObject({ code: 2, out: expect.stringContaining('Permission denied') });
  const state = join(home, '.local/state/otela');
  expect([openFiles(state), openFiles(join(user.home, '.otela'))]).toEqual([[], []]);
  // Arguments of programs are public.
  const secrets = [
    ...secretsIn(state),
    readFileSync(join(user.home, '.otela/run', idOf(state), 'token'), 'utf8').trim(),
  ];
  expect(secrets).toHaveLength(3);
  const seen = as('ps -eo args').out;
  expect(seen).toContain('otela-agent relay');
  expect(secrets.filter((secret) => seen.includes(secret))).toEqual([]);
  // All addresses at which the run's programs listen are private.
  const relayAddress = readFileSync(join(user.home, '.otela/run', idOf(state), 'relay'), 'utf8').trim();
  const relayPort = Number(relayAddress.split(':')[1]);
  const asked = (port: number, headers = '') =>
    as(
      `printf 'GET /v1/models HTTP/1.1\\r\\nhost: x\\r\\n${headers}\\r\\n' | timeout 8 bash -c 'exec 3<>/dev/tcp/127.0.0.1/${port}; cat >&3; head -c 12 <&3'`,
    );
  expect(asked(relayPort).out).toBe('');
  const engine = 20_000 + (Number(`1${job}`) % 10_000);
  expect(asked(engine).out).toBe('HTTP/1.1 401');
  expect(asked(portIn(state)).out).toBe('HTTP/1.1 401');
  const listening = as('ss -Hltn').out;
  for (const port of [relayPort, engine, portIn(state)])
    expect([...listening.matchAll(new RegExp(`(\\S+):${port}\\s`, 'g'))].map(([, address]) => address)).toEqual([
      '127.0.0.1',
    ]);
}

const runSchema = z.object({ id: z.string() });
const gatewaySchema = z.object({ port: z.number(), key: z.string() });

function runIn(state: string): z.infer<typeof runSchema> {
  const [name = ''] = readdirSync(join(state, 'runs')).filter((one) => one.endsWith('.json'));
  return runSchema.parse(JSON.parse(readFileSync(join(state, 'runs', name), 'utf8')));
}
const idOf = (state: string) => runIn(state).id;
const gatewayIn = (state: string) => gatewaySchema.parse(JSON.parse(readFileSync(join(state, 'gateway.json'), 'utf8')));
const portIn = (state: string) => gatewayIn(state).port;
const secretsIn = (state: string) => [
  gatewayIn(state).key,
  readFileSync(join(state, 'gateway/admin.key'), 'utf8').trim(),
];

it.skipIf(NO_SSHD)(
  'one command serves a model, comes back after a lost connection and a restart, and leaves nothing',
  async () => {
    const laptop = await Laptop.open('', 'DisableForwarding yes');
    const { cluster, user, home } = laptop;
    const up = laptop.up('--time', '10');
    const access = await served(up);
    expect(await answer(access)).toContain('This is a stand-in engine');
    expect(up.output).toContain('not a language model');
    const job = cluster.command('squeue', '-h', '-o', '%i').trim();

    await strangersGetNothing(laptop, job);

    // A second command for the same model.
    expect(await laptop.ran('up', MODEL, '--host', 'cluster')).toMatchObject({
      code: 0,
      out: expect.stringContaining('already up'),
    });

    // The network is gone for a moment.
    await laptop.host.down();
    await up.line(/connection is lost; the job continues/, 60_000);
    await laptop.host.up();
    await up.line(/connected to cluster again/, 60_000);
    await eventually('an answer through the new connection', 30_000, async () =>
      (await answer(access)).includes('stand-in') ? true : undefined,
    );

    const listed = await laptop.ran('ls');
    expect(listed).toMatchObject({ code: 0, out: expect.stringContaining(`job ${job} runs`) });
    expect((await laptop.ran('logs')).out).toContain('otela-agent');

    // The command ends, and starts again.
    up.signal('SIGINT');
    expect(await up.end(30_000)).toMatchObject({ code: 0 });
    expect(cluster.command('squeue', '-h', '-o', '%i').trim()).toBe(job);
    const again = laptop.up();
    expect(await answer(await served(again))).toContain('stand-in');
    expect(cluster.command('squeue', '-h', '-o', '%i').trim()).toBe(job);

    const down = await laptop.ran('down', '--purge');
    expect(down).toMatchObject({ code: 0 });
    expect(await again.end(30_000)).toMatchObject({ code: 0 });
    expect(cluster.command('squeue', '-h', '-o', '%i').trim()).toBe('');
    expect(existsSync(join(user.home, '.otela'))).toBe(false);
    expect(existsSync(join(home, '.local/state/otela'))).toBe(false);
    await noProcessOf(user);
  },
);
