/** `otela share --gateway --nodes`: the nodes of jobs at an institution's gateway. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { LocalGateway } from '../../up/gateway/local-gateway.ts';
import { stateDirectory } from '../../up/state/state-directory.ts';
import { answer, served } from '../slurm/laptop.ts';
import { ENGINE_MAIN } from '../support/agent.ts';
import { llamaServer } from '../support/llama-server.ts';
import { atEnd, endAll, eventually, Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE, OTELA_MAIN, ROOT } from '../support/where.ts';

afterEach(endAll);

it('a node of a job serves an institution while the laptop is away, until it is taken back', async () => {
  const [home, elsewhere] = [await temporaryDirectory('otela-laptop'), await temporaryDirectory('otela-institution')];
  const institution = new LocalGateway(stateDirectory({ ...process.env, HOME: elsewhere, XDG_STATE_HOME: elsewhere }));
  await institution.ensure();
  atEnd(() => institution.stop());
  await mkdir(join(home, 'bin'));
  await writeFile(join(home, 'bin/llama-server'), llamaServer(NODE, ENGINE_MAIN), { mode: 0o755 });
  await writeFile(join(home, 'tiny.gguf'), 'GGUF');
  const env = { HOME: home, PATH: `${join(home, 'bin')}:${process.env.PATH}` };
  const otela = (...args: string[]) =>
    new Managed([NODE, OTELA_MAIN, ...args], { label: `otela ${args[0]}`, env, cwd: ROOT });
  const ran = async (...args: string[]) => {
    const running = otela(...args);
    const { code } = await running.end(120_000);
    return { code, out: running.output };
  };
  const tokenFile = join(home, 'institution.token');
  const share = (...more: string[]) =>
    ran('share', '--gateway', institution.url, '--token-file', tokenFile, '--nodes', ...more);
  await writeFile(tokenFile, 'not-a-token\n', { mode: 0o600 });
  expect(await share()).toMatchObject({ code: 69, out: expect.stringContaining('No model is up') });

  const up = otela('up', join(home, 'tiny.gguf'));
  await served(up);
  expect(await share()).toMatchObject({
    code: 69,
    out: expect.stringMatching(/gateway refuses the node[\s\S]*join token/),
  });
  expect(await institution.nodes('lab')).toEqual([]);
  await writeFile(tokenFile, `${(await institution.createJoinToken('lab')).token}\n`);
  expect(await share('--tokens', '1M')).toMatchObject({ code: 2 });
  const joined = await share();
  expect(joined).toMatchObject({ code: 0, out: expect.stringMatching(/at http:\S+ as node [\w-]+, until/) });
  // The same command extends the offer: the node stays.
  const node = /as node [\w-]+,/.exec(joined.out)?.[0] ?? 'no node';
  expect(await share('--for', '60d')).toMatchObject({ code: 0, out: expect.stringContaining(node) });

  // The laptop goes away: its gateway and its command end.
  up.signal('SIGINT');
  expect(await up.end(30_000)).toMatchObject({ code: 0 });
  const access = { url: `${institution.url}/v1`, key: await institution.apiKey() };
  await eventually('an answer at the institution', 30_000, async () =>
    (await answer(access, 'tiny')).includes('stand-in') ? true : undefined,
  );

  expect(await share('--revoke')).toMatchObject({ code: 0 });
  await eventually('no node at the institution', 30_000, async () => {
    const [node] = await institution.nodes('lab');
    return node === undefined || node.state !== 'SERVING' || undefined;
  });
  expect(await ran('down', '--purge')).toMatchObject({ code: 0 });
});
