/** `otela up` without a batch system: on this machine, and on a workstation by ssh. */
import { existsSync } from 'node:fs';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { answer, served } from '../slurm/laptop.ts';
import { installPrograms } from '../slurm/programs.ts';
import { ENGINE_MAIN } from '../support/agent.ts';
import { llamaServer } from '../support/llama-server.ts';
import { endAll, Managed, temporaryDirectory } from '../support/processes.ts';
import { createUser, NO_SSHD, noProcessOf, SshHost } from '../support/ssh-host.ts';
import { NODE, OTELA_MAIN, ROOT } from '../support/where.ts';

afterEach(endAll);

function otela(home: string, path: string, ...args: string[]): Managed {
  const env = { HOME: home, PATH: `${path}:${process.env.PATH}` };
  return new Managed([NODE, OTELA_MAIN, ...args], { label: `otela ${args[0]}`, env, cwd: ROOT });
}

it('a GGUF file is served by this machine, comes back after Ctrl-C, and leaves nothing', async () => {
  const home = await temporaryDirectory('otela-machine');
  const bin = join(home, 'bin');
  await mkdir(bin);
  await writeFile(join(bin, 'llama-server'), llamaServer(NODE, ENGINE_MAIN), { mode: 0o755 });
  const model = join(home, 'tiny.gguf');
  const missing = otela(home, bin, 'up', model);
  expect(await missing.end(60_000)).toMatchObject({ code: 69 });
  expect(missing.output).toMatch(/failed to open .*tiny\.gguf[\s\S]*otela logs/);

  await writeFile(model, 'GGUF');
  const up = otela(home, bin, 'up', model);
  const access = await served(up);
  expect(await answer(access, 'tiny')).toContain('stand-in');
  expect(up.output).not.toContain('ssh');
  up.signal('SIGINT');
  expect(await up.end(30_000)).toMatchObject({ code: 0 });
  const ls = otela(home, bin, 'ls');
  expect(await ls.end(30_000)).toMatchObject({ code: 0 });
  expect(ls.output).toMatch(/this machine .*process \d+ runs/);

  const again = otela(home, bin, 'up', model);
  expect(await answer(await served(again), 'tiny')).toContain('stand-in');
  const down = otela(home, bin, 'down', '--purge');
  expect(await down.end(60_000)).toMatchObject({ code: 0 });
  expect(await again.end(30_000)).toMatchObject({ code: 0 });
  expect([existsSync(join(home, '.otela')), existsSync(join(home, '.local/state/otela'))]).toEqual([false, false]);
});

it('two commands at the same time share one gateway, and the same command twice serves once', async () => {
  const home = await temporaryDirectory('otela-machine');
  const bin = join(home, 'bin');
  await mkdir(bin);
  await writeFile(join(bin, 'llama-server'), llamaServer(NODE, ENGINE_MAIN), { mode: 0o755 });
  for (const name of ['one', 'two']) await writeFile(join(home, `${name}.gguf`), 'GGUF');
  const [one, two] = ['one', 'two'].map((name) => otela(home, bin, 'up', join(home, `${name}.gguf`)));
  if (one === undefined || two === undefined) throw new Error('a command is missing');
  const [first, second] = await Promise.all([served(one), served(two)]);
  expect(first).toEqual(second);
  expect(await answer(first, 'one')).toContain('stand-in');
  expect(await answer(first, 'two')).toContain('stand-in');
  const twice = otela(home, bin, 'up', join(home, 'one.gguf'));
  expect(await twice.end(30_000)).toMatchObject({ code: 0 });
  expect(twice.output).toContain('is already up in another process');
  const gateway = join(home, '.local/state/otela/gateway');
  const key = (await readFile(join(gateway, 'admin.key'), 'utf8')).trim();
  const tokens = async () => {
    const headers = { authorization: `Bearer ${key}` };
    const response = await fetch(new URL('/admin/join-tokens', first.url), { headers });
    const { data }: { data: { revoked_at: string | null }[] } = JSON.parse(await response.text());
    return data.map((token) => token.revoked_at !== null).sort();
  };
  expect(await tokens()).toEqual([false, false]);
  expect(await otela(home, bin, 'down', join(home, 'one.gguf')).end(60_000)).toMatchObject({ code: 0 });
  expect(await tokens()).toEqual([false, true]);
  const down = otela(home, bin, 'down', '--purge');
  expect(await down.end(60_000)).toMatchObject({ code: 0 });
  for (const up of [one, two]) expect(await up.end(30_000)).toMatchObject({ code: 0 });
});

it('a model that no program of this machine can serve is told with the ways on', async () => {
  const home = await temporaryDirectory('otela-machine');
  const up = otela(home, home, 'up', 'Qwen/Qwen3-8B');
  expect(await up.end(60_000)).toMatchObject({ code: 69 });
  expect(up.output).toMatch(/this machine has no vllm, sglang, lmdeploy on its PATH[\s\S]*--host me@login/);
  const keep = otela(home, home, 'up', 'Qwen/Qwen3-8B', '--keep', '3d');
  expect(await keep.end(60_000)).toMatchObject({ code: 69 });
  expect(keep.output).toContain('has no Slurm');
});

it.skipIf(NO_SSHD)('a workstation without Slurm serves by ssh, without port forwarding', async () => {
  const directory = await temporaryDirectory('otela-workstation');
  await chmod(directory, 0o755);
  await installPrograms(directory);
  const installed = join(directory, 'bin');
  const user = await createUser('unset PROXY HTTP_PROXY http_proxy');
  const script = llamaServer(join(installed, 'node'), join(installed, 'stand-in-engine.mjs'));
  const loads = script.replace('exec ', `while [ ! -e ${user.home}/loaded ]; do sleep 0.2; done\nexec `);
  await writeFile(join(user.home, 'bin/llama-server'), loads, { mode: 0o755 });
  await writeFile(join(user.home, 'tiny.gguf'), 'GGUF', { mode: 0o644 });
  const host = await SshHost.start('DisableForwarding yes');
  const home = await temporaryDirectory('otela-laptop');
  const bin = await host.client(user, home);
  const up = otela(home, bin, 'up', 'tiny.gguf', '--host', 'cluster', '--no-slurm');
  await up.line(/the engine loads/, 60_000);
  await host.down();
  await up.line(/the state of job \d+ is unknown/, 60_000);
  await host.up();
  await up.line(/connected to cluster again/, 60_000);
  await writeFile(join(user.home, 'loaded'), '');
  const access = await served(up);
  expect(await answer(access, 'tiny')).toContain('stand-in');
  await host.down();
  await up.line(/connection is lost; the job continues/, 60_000);
  await host.up();
  await up.line(/(connected to cluster again[\s\S]*){2}/, 60_000);
  const down = otela(home, bin, 'down', '--purge');
  expect(await down.end(60_000)).toMatchObject({ code: 0 });
  expect(await up.end(30_000)).toMatchObject({ code: 0 });
  expect(existsSync(join(user.home, '.otela'))).toBe(false);
  await noProcessOf(user);
});
