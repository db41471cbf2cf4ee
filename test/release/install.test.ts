/**
 * Each file of a release in an empty root (no compiler, no git, no clone): installed as the pages say, started, one
 * response through gateway, agent and the mock engine, and removed without a trace.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { chmod, copyFile, cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { basename, join, relative } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { cannotRun, which } from '../support/abilities.ts';
import { startEngine } from '../support/engine.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { atEnd, endAll, freePort, temporaryDirectory } from '../support/processes.ts';
import { BUILT_VARIABLE, NODE, ROOT } from '../support/where.ts';
import { differences } from './differences.ts';
import { addNode, type EmptyRoot, emptyRoot, PLATFORM } from './root.ts';

const MODEL = 'stand-in/model-1';
/** Maximum disk space of an installed release. */
const UNPACKED_BYTES_MAX = 30 * 2 ** 20;
const READY_MS = 120_000;
/** Files of npm itself: fetched, logged and compiled. */
const NPM_LEAVES = /^(root\/\.npm|tmp\/node-compile-cache)\//;

const { version } = z
  .object({ version: z.string() })
  .parse(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')));
/** Why nothing can be installed here; undefined: it can. */
const noRoot = cannotRun('release');

let out: string;
let log: string;

/** `npm test` has built this clone, and other tests use its dist/ meanwhile. */
const AS_BUILT = process.env[BUILT_VARIABLE] === undefined ? [] : ['--no-build'];

/** What the release of the clone in `root` prints. */
function release(root: string, ...args: string[]): string {
  const env = { ...process.env, SOURCE_DATE_EPOCH: '1767225600' };
  return execFileSync(NODE, [join(root, 'packaging/main.ts'), ...args], {
    cwd: root,
    encoding: 'utf8',
    env,
    maxBuffer: 2 ** 24,
  });
}

/** A copy of this clone that was never built. */
async function copied(directory: string): Promise<string> {
  const clone = join(directory, 'clone');
  const left = new Set(['node_modules', 'dist', '.git', '.ci', '.wrangler', 'data', 'release', 'cloudflare-keys']);
  await cp(ROOT, clone, { recursive: true, filter: (path) => !left.has(relative(ROOT, path)) });
  execFileSync('cp', ['-al', join(ROOT, 'node_modules'), join(clone, 'node_modules')]);
  return clone;
}

let key: string;
beforeAll(async () => {
  key = join(await temporaryDirectory('otela-release-key'), 'key.pem');
  release(ROOT, '--new-key', key);
  out = join(await temporaryDirectory('otela-first'), 'release');
  if (noRoot === undefined) log = release(ROOT, '--key', key, '--out', out, ...AS_BUILT);
});
afterAll(endAll);

const sums = (directory: string) => readFile(join(directory, 'SHA256SUMS'), 'utf8');

/** Runs `serve` of the release, with its data in `data`. */
async function gatewayIn(root: EmptyRoot, command: string[], data: string) {
  const port = await freePort();
  const process = root.start([...command, '--port', String(port)], { label: 'gateway' });
  await process.line(/otela-gateway ready/, READY_MS);
  const adminKey = (await readFile(join(root.path, data, 'admin.key'), 'utf8')).trim();
  return { process, gateway: new GatewayClient(`http://127.0.0.1:${port}`, adminKey) };
}

/** An agent in `root`, for an engine of this machine. Resolves when it serves. */
async function agentIn(root: EmptyRoot, gateway: GatewayClient, program: string, ...flags: string[]) {
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  await writeFile(join(root.path, 'root/otela-token'), `${await gateway.createJoinToken()}\n`, { mode: 0o600 });
  const command = [program, 'start', '--gateway', gateway.url, '--token-file', '/root/otela-token'];
  const agent = root.start([...command, '--engine-url', engine.url, ...flags], { label: 'agent' });
  // Waits for the agent first, because an agent that ends prints the reason.
  await agent.line(/\bserving\b/, READY_MS);
  await gateway.serving(1, READY_MS, MODEL);
  return agent;
}

async function answer(gateway: GatewayClient): Promise<void> {
  const headers = { authorization: `Bearer ${await gateway.createKey()}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'hello' }] });
  const response = await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers, body });
  expect([response.status, await response.text()]).toEqual([200, expect.stringContaining('chat.completion')]);
}

it('two runs in two places give the same bytes, and every file has its checksum', async ({ skip }) => {
  skip(noRoot !== undefined, noRoot);
  const directory = await temporaryDirectory('otela-second-in-a-place-with-a-longer-name');
  const second = join(directory, 'release');
  release(await copied(directory), '--key', key, '--out', second);
  const differing = await differences(out, second);
  expect(differing, differing.join('\n')).toEqual([]);
  const names = [...(await sums(out)).matchAll(/^[0-9a-f]{64} {2}(.*)$/gm)].map(([, name = '']) => name);
  expect(names.toSorted()).toEqual(
    [
      'LICENSE',
      'manifest.json',
      'manifest.sig',
      `opentela-${version}-py3-none-any.whl`,
      `opentela-${version}.cdx.json`,
      `opentela-${version}.tgz`,
      `opentela-chart-${version}.tgz`,
      `opentela-image-${version}-linux-arm64.tar`,
      `opentela-image-${version}-linux-x64.tar`,
      `opentela-seal-${version}.tgz`,
      'otela-agent-linux-arm64',
      'otela-agent-linux-x64',
      'release.pub',
    ].toSorted(),
  );
  expect(spawnSync('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], { cwd: out }).status).toBe(0);
});

it('the list of parts names what is bundled, for the page too, and nothing that only builds', async ({ skip }) => {
  skip(noRoot !== undefined, noRoot);
  const bom = z
    .object({
      bomFormat: z.literal('CycloneDX'),
      components: z.array(z.object({ name: z.string(), purl: z.string() })),
    })
    .parse(JSON.parse(await readFile(join(out, `opentela-${version}.cdx.json`), 'utf8')));
  const names = bom.components.map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining(['hono', 'zod', 'highs', 'react', 'node', 'libc6']));
  for (const tool of ['vitest', 'esbuild', 'wrangler', 'typescript']) expect(names).not.toContain(tool);
  expect(bom.components.find(({ name }) => name === 'libc6')?.purl).toMatch(/^pkg:deb\/debian\/libc6@[^?]+\?arch=/);
});

it('the npm package: all commands, without a registry; gateway and agent answer; npm removes all of it', async ({
  skip,
}) => {
  skip(noRoot !== undefined, noRoot);
  const root = await emptyRoot();
  await addNode(root);
  const before = new Set(await root.changed());
  const file = `opentela-${version}.tgz`;
  await copyFile(join(out, file), join(root.path, 'tmp', file));
  root.run('npm', 'install', '--global', '--offline', '--no-audit', '--no-fund', `/tmp/${file}`);

  const installed = join(root.path, 'usr/local/lib/node_modules/opentela');
  const bytes = Number(execFileSync('du', ['-sb', installed], { encoding: 'utf8' }).split('\t')[0]);
  expect(bytes).toBeLessThanOrEqual(UNPACKED_BYTES_MAX);
  for (const manifest of globSync(`${installed}/**/package.json`)) {
    const { scripts = {} } = z
      .object({ scripts: z.record(z.string(), z.string()).optional() })
      .parse(JSON.parse(await readFile(manifest, 'utf8')));
    expect([basename(manifest), Object.keys(scripts).filter((name) => /install|prepare/.test(name))]).toEqual([
      'package.json',
      [],
    ]);
  }
  for (const name of ['otela', 'otela-agent', 'otela-gateway', 'otela-plan', 'otela-factory'])
    expect(root.run(name, '--version').trim()).toBe(`${name} ${version}`);
  const solver =
    "import('/usr/local/lib/node_modules/opentela/node_modules/highs/build/highs.mjs').then((m) => m.default()).then((h) => console.log(h.solve('Minimize obj: x subject to c: x >= 2 end').Status))";
  expect(root.run('node', '-e', solver).trim()).toBe('Optimal');

  const { gateway, process } = await gatewayIn(root, ['otela-gateway', 'serve', '--data', '/root/data'], 'root/data');
  expect(await (await fetch(gateway.url)).text()).toContain('<script');
  const agent = await agentIn(root, gateway, 'otela-agent');
  await answer(gateway);
  await agent.stop();
  await process.stop();

  root.run('npm', 'uninstall', '--global', 'opentela');
  root.run('rm', '-rf', '/root/data', '/root/otela-token', `/tmp/${file}`);
  expect((await root.changed()).filter((path) => !before.has(path) && !NPM_LEAVES.test(path))).toEqual([]);
});

/** The image's root directory and the start of its container, read as docker does. */
async function unpackedImage(): Promise<{ rootfs: string; user: string; command: string[] }> {
  const directory = await temporaryDirectory('otela-image');
  execFileSync('tar', ['-xf', join(out, `opentela-image-${version}-${PLATFORM}.tar`), '-C', directory]);
  const json = async (path: string): Promise<unknown> => JSON.parse(await readFile(join(directory, path), 'utf8'));
  const [listed] = z
    .array(z.object({ Config: z.string(), RepoTags: z.array(z.string()), Layers: z.array(z.string()) }))
    .parse(await json('manifest.json'));
  if (listed === undefined) throw new Error('the image has no manifest');
  expect(listed.RepoTags).toEqual([`opentela:${version}`]);
  const { config, rootfs: layers } = z
    .object({
      config: z.object({ User: z.string(), Entrypoint: z.array(z.string()), Cmd: z.array(z.string()) }),
      rootfs: z.object({ diff_ids: z.array(z.string()) }),
    })
    .parse(await json(listed.Config));
  const rootfs = join(directory, 'rootfs');
  await mkdir(rootfs);
  for (const [n, layer] of listed.Layers.entries()) {
    const digest = createHash('sha256')
      .update(gunzipSync(await readFile(join(directory, layer))))
      .digest('hex');
    expect(layers.diff_ids[n]).toBe(`sha256:${digest}`);
    execFileSync('tar', ['-xzpf', join(directory, layer), '-C', rootfs]);
  }
  return { rootfs, user: config.User, command: [...config.Entrypoint, ...config.Cmd] };
}

it('image and single file: the gateway of one, as its user, and the agent that needs no Node', async ({ skip }) => {
  skip(noRoot !== undefined, noRoot);
  const { rootfs, user, command } = await unpackedImage();
  expect(globSync(['etc/resolv.conf', 'etc/hostname'], { cwd: rootfs })).toEqual([]);
  const container = await emptyRoot(rootfs, user);
  // Only root can make devices; docker provides these.
  await mkdir(join(container.path, 'dev'), { recursive: true });
  for (const [name, minor] of Object.entries({ null: '3', urandom: '9' })) {
    execFileSync('mknod', ['-m', '666', join(container.path, 'dev', name), 'c', '1', minor]);
  }
  const { gateway, process } = await gatewayIn(container, command, 'data');
  expect(container.run('sh', '-c', 'cat /data/admin.key').trim()).not.toBe('');
  expect(container.run('otela-agent', '--version').trim()).toBe(`otela-agent ${version}`);
  expect(container.run('otela-mock-engine', '--help')).toContain('--model NAME');

  const machine = await emptyRoot();
  await copyFile(join(out, `otela-agent-${PLATFORM}`), join(machine.path, 'root/otela-agent'));
  for (const name of ['manifest.json', 'manifest.sig'])
    await copyFile(join(out, name), join(machine.path, 'root', name));
  await chmod(join(machine.path, 'root/otela-agent'), 0o755);
  const agent = await agentIn(machine, gateway, '/root/otela-agent');
  await answer(gateway);
  await agent.stop();
  await process.stop();
  machine.run('rm', '-r', '/root/otela-agent', '/root/manifest.json', '/root/manifest.sig', '/root/otela-token');
  expect(await machine.changed()).toEqual([]);
  expect((await container.changed()).filter((path) => !/^(data|dev)\//.test(path))).toEqual([]);
});

it.for(['skopeo', 'podman'])('%s takes the image', async (tool, { skip }) => {
  skip(noRoot !== undefined, noRoot);
  skip(which(tool) === undefined, `not installed: ${tool}`);
  const file = join(out, `opentela-image-${version}-${PLATFORM}.tar`);
  const store = ['--root', await temporaryDirectory('otela-podman'), '--storage-driver', 'vfs'];
  const args = {
    skopeo: [
      ['inspect', `docker-archive:${file}`],
      ['inspect', `oci-archive:${file}`],
    ],
    podman: [
      [...store, 'load', '--input', file],
      [...store, 'image', 'inspect', `opentela:${version}`],
    ],
  }[tool];
  for (const one of args ?? []) {
    const { status, stdout, stderr } = spawnSync(tool, one, { encoding: 'utf8', maxBuffer: 2 ** 24 });
    expect([status, stderr], one.join(' ')).toEqual([0, expect.any(String)]);
    expect(stdout).toContain('opentela');
  }
});

it('the wheel: a function runs on a node, pip removes all of it, and sealing says what it needs', async ({ skip }) => {
  skip(noRoot !== undefined, noRoot);
  const root = await emptyRoot();
  const wheel = `opentela-${version}-py3-none-any.whl`;
  await copyFile(join(out, wheel), join(root.path, 'tmp', wheel));
  await copyFile(join(ROOT, 'clients/python/example.py'), join(root.path, 'root/example.py'));
  root.run('python3', '-m', 'venv', '/root/venv');
  const before = new Set(await root.changed());
  root.run('/root/venv/bin/pip', 'install', '--no-index', '--quiet', `/tmp/${wheel}`);
  await copyFile(join(out, `otela-agent-${PLATFORM}`), join(root.path, 'root/otela-agent'));
  await chmod(join(root.path, 'root/otela-agent'), 0o755);

  const server = await emptyRoot();
  await addNode(server);
  await copyFile(join(out, `opentela-${version}.tgz`), join(server.path, 'tmp/opentela.tgz'));
  server.run('npm', 'install', '--global', '--offline', '--no-audit', '--no-fund', '/tmp/opentela.tgz');
  const serve = ['env', 'REQUIRE_SIGNED_AGENT=off', 'otela-gateway', 'serve', '--data', '/root/data'];
  const { gateway } = await gatewayIn(server, serve, 'root/data');
  const agent = await agentIn(root, gateway, '/root/otela-agent', '--allow-functions', 'all');
  const variables = [`OTELA_GATEWAY=${gateway.url}`, `OTELA_API_KEY=${await gateway.createKey()}`];
  const run = root.start(['env', ...variables, '/root/venv/bin/python', '/root/example.py'], { label: 'python' });
  expect([await run.end(READY_MS), run.output.trim()]).toEqual([{ code: 0, signal: null }, "['SUPPORTED', 'REFUTED']"]);
  await agent.stop();
  const seal = root.start(['/root/venv/bin/python', '-c', 'import opentela.seal'], { label: 'python' });
  expect((await seal.end(READY_MS)).code).toBe(1);
  expect(seal.output).toContain("pip install 'opentela[seal]'");

  root.run('/root/venv/bin/pip', 'uninstall', '--yes', '--quiet', 'opentela');
  root.run('rm', '-rf', `/tmp/${wheel}`, '/root/example.py', '/root/otela-agent', '/root/otela-token');
  const left = (await root.changed()).filter((path) => !before.has(path) && !path.includes('__pycache__'));
  expect(left).toEqual([]);
});

it('the chart is a directory of its name, as helm package writes it, and its image is the one of this release', async ({
  skip,
}) => {
  skip(noRoot !== undefined, noRoot);
  const file = join(out, `opentela-chart-${version}.tgz`);
  const listed = execFileSync('tar', ['-tzf', file], { encoding: 'utf8' }).trim().split('\n');
  expect(listed).toEqual(
    expect.arrayContaining(['opentela/Chart.yaml', 'opentela/values.yaml', 'opentela/templates/gateway.yaml']),
  );
  expect(execFileSync('tar', ['-xOzf', file, 'opentela/values.yaml'], { encoding: 'utf8' })).toContain(
    `/opentela:${version}\n`,
  );
  if (which('helm') === undefined) return console.log('not run: helm template; there is no helm here');
  expect(execFileSync('helm', ['template', 'lab', file], { encoding: 'utf8' })).toContain('kind: StatefulSet');
});

it('without a key it says that it is not signed, and admits any agent', async ({ skip }) => {
  skip(noRoot !== undefined, noRoot);
  expect(log).toContain('signed by ');
  const to = join(await temporaryDirectory('otela-unsigned'), 'release');
  expect(release(ROOT, '--out', to, '--platform', 'none', '--without', 'wheel', ...AS_BUILT)).toContain('NOT SIGNED');
  expect(globSync('*', { cwd: to }).filter((name) => /manifest|\.sig|release\.pub/.test(name))).toEqual([]);
  expect(
    execFileSync('tar', ['-xOzf', join(to, `opentela-${version}.tgz`), 'package/dist/gateway.json'], {
      encoding: 'utf8',
    }),
  ).not.toContain('releaseKeys');
});

it.for(['16', '18', '22'])('under Node %s each command says that it needs another', async (major, { skip }) => {
  skip(noRoot !== undefined, noRoot);
  const directory = await temporaryDirectory('otela-old-node');
  const packed = spawnSync('npm', ['pack', '--silent', `node-${PLATFORM}@${major}`], {
    cwd: directory,
    encoding: 'utf8',
  });
  if (packed.status !== 0) return skip(`npm cannot fetch Node ${major}: ${packed.stderr.slice(-200)}`);
  execFileSync('tar', ['-xzf', packed.stdout.trim(), 'package/bin/node'], { cwd: directory });
  execFileSync('tar', ['-xzf', join(out, `opentela-${version}.tgz`)], { cwd: directory });
  for (const name of ['otela', 'otela-agent', 'otela-gateway', 'otela-plan', 'otela-factory']) {
    const { status, stderr } = spawnSync(
      join(directory, 'package/bin/node'),
      [join(directory, `package/dist/${name}.js`), 'help'],
      {
        encoding: 'utf8',
      },
    );
    expect([name, status, stderr]).toEqual([
      name,
      2,
      expect.stringMatching(/^this needs Node 24 or later, and is run by v/),
    ]);
  }
});
