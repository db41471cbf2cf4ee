/** The provider's quick start as a whole: an ordinary user, a real `sbatch`, `squeue` and `srun`. */
import { chmod, chown, copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { follow } from '../docs/reader.ts';
import { Gateway } from '../support/gateway.ts';
import { MODEL } from '../support/house.ts';
import { endAll, freePort, temporaryDirectory } from '../support/processes.ts';
import { Cluster, USER } from './cluster.ts';

afterEach(endAll);

it('docs/quickstart-provider.md, every command of it', async () => {
  const gateway = await Gateway.start();
  const cluster = await Cluster.up();
  const home = await temporaryDirectory('otela-reader');
  const [bin, cwd] = [join(home, 'bin'), join(home, 'work')];
  for (const directory of [home, bin, cwd, join(home, 'tmp'), join(home, 'run')]) {
    await mkdir(directory, { recursive: true });
    await chmod(directory, 0o700);
    await chown(directory, USER.uid, USER.gid);
  }
  const installed = join(cluster.directory, 'bin');
  const programs = {
    'otela-agent': 'otela-agent.mjs',
    // `vllm serve NAME …`
    vllm: `stand-in-engine.mjs --model '${MODEL}'`,
  };
  for (const [name, line] of Object.entries(programs)) {
    await writeFile(join(bin, name), `#!/bin/sh\nexec ${installed}/node ${installed}/${line} "$@"\n`, { mode: 0o755 });
  }
  await chown(bin, 0, USER.gid);
  await chmod(bin, 0o755);
  // What the page downloads of a release.
  const release = join(cluster.directory, 'release');
  await mkdir(release, { mode: 0o755 });
  const single = join(release, `otela-agent-${process.platform}-${process.arch}`);
  await copyFile(join(bin, 'otela-agent'), single);
  await chmod(single, 0o755);
  const token = join(cwd, 'otela-token');
  await writeFile(token, `${await gateway.createJoinToken('eth', 'alps')}\n`, { mode: 0o600 });
  await chown(token, USER.uid, USER.gid);
  const read = await follow('docs/quickstart-provider.md', {
    cwd,
    env: {
      ...cluster.userEnv,
      HOME: home,
      USER: 'nobody',
      TMPDIR: join(home, 'tmp'),
      XDG_RUNTIME_DIR: join(home, 'run'),
      PATH: `${bin}:${installed}:${cluster.userEnv.PATH}`,
      OTELA_MESH: '127.0.0.1',
      OTELA_RELEASE: `file://${release}`,
    },
    yours: { OTELA_GATEWAY: gateway.url, MODEL, PORT: String(await freePort()) },
    has: ['Slurm'],
    ...USER,
  });
  expect(read.skipped).toEqual([]);
  expect(await read.terminals[0]?.end(5_000)).toMatchObject({ code: 0 });
});
