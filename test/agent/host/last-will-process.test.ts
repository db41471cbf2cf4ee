/** The last will's process has no more of the agent's environment than a request to a gateway needs. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { PROXY_VARIABLES } from '../../../agent/host/proxy-variables.ts';
import { eventually, temporaryDirectory } from '../../support/processes.ts';
import { NODE, ROOT } from '../../support/where.ts';

it('gets each variable that selects a proxy, and no token', async () => {
  const file = join(await temporaryDirectory('last-will'), 'environment');
  const agent = `
    import { LastWill } from ${JSON.stringify(join(ROOT, 'agent/host/last-will-process.ts'))};
    const command = ['sh', '-c', 'cat; env >"$0.part" && mv "$0.part" "$0"', ${JSON.stringify(file)}];
    new LastWill(command, process.env, console.error).set('will');
    setTimeout(() => process.kill(process.pid, 'SIGKILL'), 100);`;
  const names = [...PROXY_VARIABLES];
  const env = { PATH: process.env.PATH, TOKEN: 'secret', ...Object.fromEntries(names.map((name) => [name, name])) };
  expect(spawnSync(NODE, ['--input-type=module', '-e', agent], { env }).signal).toBe('SIGKILL');
  const got = await eventually('the environment', 20_000, () =>
    existsSync(file) ? readFileSync(file, 'utf8').split('\n') : undefined,
  );
  expect(got).toEqual(expect.arrayContaining(names.map((name) => `${name}=${name}`)));
  expect(got.join()).not.toContain('secret');
});
