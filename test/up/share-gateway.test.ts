/** `otela share --gateway`: the models of this machine at an institution's gateway. */
import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { LocalGateway } from '../../up/gateway/local-gateway.ts';
import { stateDirectory } from '../../up/state/state-directory.ts';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { descendants } from '../support/process-table.ts';
import { atEnd, endAll, eventually, Managed, temporaryDirectory } from '../support/processes.ts';
import { createUser, NO_SSHD } from '../support/ssh-host.ts';
import { NODE, OTELA_MAIN, ROOT } from '../support/where.ts';

const MODEL = 'shared-model';

afterEach(endAll);

interface Site {
  gateway: LocalGateway;
  env: Record<string, string>;
  home: string;
}

/** A gateway with a state directory. */
async function site(): Promise<Site> {
  const home = await temporaryDirectory('otela-share');
  const env = { HOME: home, XDG_STATE_HOME: join(home, 'state'), XDG_CACHE_HOME: join(home, 'cache') };
  const gateway = new LocalGateway(stateDirectory({ ...process.env, ...env }));
  await gateway.ensure();
  atEnd(() => gateway.stop());
  return { gateway, env, home };
}

async function ask({ gateway }: Site, key: string) {
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, max_tokens: 20, messages: [{ role: 'user', content: 'Hello' }] }),
  });
  return { status: response.status, text: await response.text() };
}

it('the models of a laptop answer at an institution, within their budget, until the command ends', async () => {
  const [laptop, institution] = [await site(), await site()];
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const { token } = await laptop.gateway.createJoinToken('up-test');
  await startAgent({ gateways: [laptop.gateway.url], token, engineUrl: engine.url });
  const serves = async ({ gateway }: Site, cluster: string) =>
    (await gateway.nodes(cluster))[0]?.state === 'SERVING' || undefined;
  await eventually('a node of the laptop', 30_000, () => serves(laptop, 'up-test'));
  const tokenFile = join(laptop.home, 'institution.token');
  const share = (...args: string[]) =>
    new Managed([NODE, OTELA_MAIN, 'share', '--gateway', institution.gateway.url, '--token-file', tokenFile, ...args], {
      label: 'otela share',
      env: laptop.env,
      cwd: ROOT,
    });

  // A token of another gateway opens nothing.
  await writeFile(tokenFile, `${token}\n`, { mode: 0o600 });
  const foreign = share();
  expect(await foreign.end(60_000)).toMatchObject({ code: 69 });
  expect(foreign.output).toMatch(/refuses this machine:[\s\S]*join token of your provider/);
  expect(await institution.gateway.nodes('lab')).toEqual([]);

  await writeFile(tokenFile, `${(await institution.gateway.createJoinToken('lab')).token}\n`, { mode: 0o600 });
  const shared = share('--tokens', '60');
  await shared.line(/are offered at .* as node/, 60_000);
  await eventually('a node of the institution', 30_000, () => serves(institution, 'lab'));
  const second = share();
  expect(await second.end(30_000)).toMatchObject({ code: 69 });
  expect(second.output).toContain('Another process of this machine offers the models');
  const key = await institution.gateway.apiKey();
  expect(await ask(institution, key)).toMatchObject({ status: 200 });
  await strangerGetsNothing(laptop, shared.pid);
  // The laptop's own budget for the institution.
  await eventually(
    'the end of the budget',
    30_000,
    async () => (await ask(institution, key)).status === 429 || undefined,
  );
  expect(await ask(laptop, await laptop.gateway.apiKey())).toMatchObject({ status: 200 });

  shared.signal('SIGINT');
  expect(await shared.end(60_000)).toMatchObject({ code: 0 });
  await eventually('no node of the institution', 30_000, async () => {
    const [node] = await institution.gateway.nodes('lab');
    return node === undefined || node.state !== 'SERVING' || undefined;
  });
  expect(await laptop.gateway.revokeSharedKeys(`the gateway ${new URL(institution.gateway.url).host}`)).toBe(0);
});

/** Another user of the laptop reads no secret of the offer, and finds no port of it. */
async function strangerGetsNothing({ home, env }: Site, pid: number): Promise<void> {
  const agents = descendants(pid);
  expect(agents).not.toEqual([]);
  const listening = spawnSync('ss', ['-Hltnp'], { encoding: 'utf8' }).stdout;
  for (const agent of agents) expect(listening).not.toContain(`pid=${agent},`);
  if (NO_SSHD) return;
  const { uid, gid } = await createUser();
  const as = (script: string) => spawnSync('bash', ['-c', script], { uid, gid, cwd: '/', encoding: 'utf8' });
  for (const file of [
    join(home, 'institution.token'),
    `/proc/${agents[0]}/environ`,
    join(env.XDG_STATE_HOME ?? '', 'otela'),
  ])
    expect([file, as(`head -c 1 '${file}'`)]).toMatchObject([file, { status: 1, stdout: '' }]);
}

it.each([
  [['--gateway', 'http://gw.example.org', '--token-file', 'x'], 'is not encrypted'],
  [['--gateway', 'https://gw.example.org'], 'give both --gateway URL and --token-file FILE'],
  [['--gateway', 'https://me:secret@gw.example.org', '--token-file', 'x'], 'only a path may follow'],
  [['--gateway', 'https://gw.example.org', '--token-file', 'x', '--with', 'ada'], 'does not combine'],
])('%j is refused before anything is sent', async (args, words) => {
  const refused = new Managed([NODE, OTELA_MAIN, 'share', ...args], { label: 'otela share', cwd: ROOT });
  expect(await refused.end(30_000)).toMatchObject({ code: 2 });
  expect(refused.output).toContain(words);
});
