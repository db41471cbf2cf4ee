/** Runs the quick starts as they are written. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { NO_POSTGRES, pythonWith } from '../support/abilities.ts';
import { ENGINE_MAIN } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { PostgresServer } from '../support/postgres.ts';
import { atEnd, endAll, freePort, temporaryDirectory } from '../support/processes.ts';
import { MODEL, openTestCluster } from '../support/test-cluster.ts';
import { AGENT_MAIN, GATEWAY_MAIN, NODE, ROOT } from '../support/where.ts';
import { follow, type Place, type Read } from './reader.ts';
import { release } from './release.ts';

afterEach(endAll);

/** `OTELA_TEST_NETWORK=1`: packages are installed from the registries, as for a reader, and not from this clone. */
const ONLINE = process.env.OTELA_TEST_NETWORK === '1';
const NETWORK = ONLINE ? ['PyPI', 'the npm registry'] : [];
/** This machine's settings for reaching the registries. */
const WAYS: Record<string, string> = {};
for (const [name, value] of ONLINE ? Object.entries(process.env) : []) {
  if (/^(npm_config_|pip_|ssl_|node_extra_ca|\w+_proxy$)/i.test(name)) WAYS[name] = value ?? '';
}

/** A separate home for the reader, with programs that are first on the PATH. */
async function place(programs: Record<string, string>, yours: Record<string, string>, has: string[]): Promise<Place> {
  const home = await temporaryDirectory('otela-reader');
  const cwd = join(home, 'work');
  for (const directory of ['bin', 'tmp', 'run', 'work']) await mkdir(join(home, directory), { mode: 0o700 });
  for (const [name, line] of Object.entries(programs)) {
    await writeFile(join(home, 'bin', name), `#!/bin/sh\nexec ${line} "$@"\n`, { mode: 0o755 });
  }
  const env = {
    HOME: home,
    TMPDIR: join(home, 'tmp'),
    XDG_RUNTIME_DIR: join(home, 'run'),
    PATH: `${join(home, 'bin')}:${dirname(NODE)}:${process.env.PATH}`,
    // Tests listen on loopback.
    OTELA_MESH: '127.0.0.1',
    ...WAYS,
  };
  return { cwd, env, yours, has };
}

/** The program's output; empty if the program does not exist. */
function run(program: string, ...args: string[]): string {
  const { stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  return `${stdout ?? ''}${stderr ?? ''}`;
}

function tell({ skipped }: Read): void {
  for (const one of skipped) console.log(`not run: ${one}`);
}

const QWEN = 'Qwen/Qwen3-8B';

/** `vllm serve NAME`, run by the mock engine; vLLM's own port may be taken on this machine. */
async function vllmAt(model: string): Promise<{ programs: Record<string, string>; replace: Record<string, string> }> {
  const port = await freePort();
  return {
    programs: { vllm: `${NODE} ${ENGINE_MAIN} --model '${model}' --port ${port}` },
    replace: { ' -- vllm serve': ` --engine-port ${port} -- vllm serve` },
  };
}

it('README.md', async () => {
  const port = String(await freePort());
  const engine = await vllmAt(QWEN);
  const here = await place({ 'otela-agent': `${NODE} ${AGENT_MAIN}`, ...engine.programs }, {}, []);
  const gateway = `${NODE} ${GATEWAY_MAIN}`;
  // The page's port may be taken on this machine.
  await writeFile(
    join(here.env.HOME ?? '', 'bin/otela-gateway'),
    `#!/bin/sh\n[ "$1" = serve ] && exec ${gateway} "$@" --port ${port}\nexec ${gateway} "$@" --url http://127.0.0.1:${port}\n`,
    { mode: 0o755 },
  );
  const replace = { '127.0.0.1:8787': `127.0.0.1:${port}`, ...engine.replace };
  const read = await follow('README.md', { ...here, replace });
  expect(read.skipped).toEqual([]);
});

it('docs/quickstart-consumer.md', async () => {
  const cluster = await openTestCluster();
  const python = pythonWith(ROOT, 'openai');
  const yours = { OPENAI_BASE_URL: cluster.base, OPENAI_API_KEY: cluster.key, MODEL, PROVIDER: 'lab' };
  const has = [...NETWORK, ...(ONLINE || python ? ['Python with openai'] : [])];
  const programs: Record<string, string> = ONLINE ? {} : { python3: python ?? 'false', node: NODE };
  const here = await place(programs, yours, has);
  // What `npm install openai` would install.
  if (!ONLINE) await symlink(join(ROOT, 'node_modules'), join(here.cwd, 'node_modules'));
  const read = await follow('docs/quickstart-consumer.md', here);
  tell(read);
  const needed = ['PyPI', 'Python with openai', 'the npm registry'];
  expect(read.skipped.map((one) => one.split(' needs ')[1]).sort()).toEqual(needed.filter((one) => !has.includes(one)));
});

it('docs/install.md', async () => {
  const here = await place({}, { OTELA_RELEASE: await release() }, ['a signed release', 'Python 3.11']);
  const read = await follow('docs/install.md', here);
  tell(read);
  // e2e/standalone/installer runs the line with a release.
  const installer = 'a gateway with a release';
  expect(read.skipped.map((one) => one.split(' needs ')[1])).toEqual([
    installer,
    installer,
    'EasyBuild or Spack',
    'Docker',
    'Docker',
    'Helm',
    'Helm',
  ]);
});

it('docs/quickstart-provider.md, without Slurm', async () => {
  const gateway = await Gateway.start();
  const port = await freePort();
  const yours = { OTELA_GATEWAY: gateway.url, MODEL, PORT: String(port) };
  // `vllm serve NAME …`
  const vllm = `${NODE} ${ENGINE_MAIN} --model '${MODEL}'`;
  const here = await place({ vllm }, yours, []);
  here.env.OTELA_RELEASE = await release();
  await writeFile(join(here.cwd, 'otela-token'), `${await gateway.createJoinToken('eth', 'alps')}\n`);
  await writeFile(join(here.cwd, 'otela-key'), `${await gateway.createKey('provider')}\n`);
  const read = await follow('docs/quickstart-provider.md', here);
  tell(read);
  expect(new Set(read.skipped.map((one) => one.split(' needs ')[1]))).toEqual(
    new Set(['a gateway with a release', 'Slurm']),
  );
  expect(await read.terminals[0]?.end(5_000)).toMatchObject({ code: 0 });
});

it('docs/quickstart-operator.md', async (context) => {
  const port = await freePort();
  const { programs, replace } = await vllmAt(QWEN);
  const yours = { PORT: String(port), DATA: join(await temporaryDirectory(), 'data'), MODEL: QWEN };
  const here = await place(programs, yours, NETWORK);
  here.env.OTELA_RELEASE = await release();
  const read = await follow('docs/quickstart-operator.md', { ...here, replace });
  tell(read);
  // e2e/standalone/domain gets a certificate, and e2e/standalone/setup makes the settings.
  expect(read.skipped.map((one) => one.split(' needs ')[1])).toEqual(['a public name']);
  const installed = join(here.env.HOME ?? '', '.local/lib/node_modules/opentela/dist');
  expect(existsSync(join(installed, 'dashboard/index.html'))).toBe(true);
  // The machine's own Node, if it is older.
  const old = ['/usr/bin/node', '/usr/local/bin/node'].find(
    (node) => Number(/^v(\d+)/.exec(run(node, '--version'))?.[1]) < 24,
  );
  if (old === undefined) return context.skip('this machine has no Node before 24: its programs were not run under one');
  for (const program of ['otela', 'otela-gateway', 'otela-agent', 'otela-plan', 'otela-factory']) {
    expect(run(old, join(installed, `${program}.js`), 'help')).toMatch(
      /^this needs Node 24 or later, and is run by v\d[\s\S]*https:\/\/nodejs\.org/,
    );
  }
});

it.skipIf(NO_POSTGRES !== undefined)('docs/operations.md: a year of two gateways', async () => {
  const server = await PostgresServer.start(`${await temporaryDirectory()}-postgres`);
  atEnd(async () => {
    await server.stop('SIGQUIT');
    await server.remove();
  });
  const here = await place(
    { 'otela-gateway': `${NODE} ${GATEWAY_MAIN}` },
    {
      D: await temporaryDirectory('otela-year'),
      DB: await server.database('year'),
      PORT1: String(await freePort()),
      PORT2: String(await freePort()),
    },
    [],
  );
  expect((await follow('docs/operations.md', here)).skipped).toEqual([]);
});
