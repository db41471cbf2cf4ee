/**
 * A signed release: its gateway admits agents of it, as one file and from the npm package, and no others. test/release/
 * installs all of its files.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { appendFile, copyFile, cp, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { machineOf } from '../../packaging/elf.ts';
import { FLOOR, newestNeeded, singleFile } from '../../packaging/single-file.ts';
import { wheel } from '../../packaging/wheel.ts';
import {
  PLATFORMS,
  type Platform,
  releaseManifestSchema,
  singleFileName,
} from '../../shared/release/release-manifest.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { which } from '../support/abilities.ts';
import { type AgentOptions, startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll, freePort } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { BUILT_VARIABLE, NODE, ROOT } from '../support/where.ts';

const REFUSED = 69;
const OWN = PLATFORMS.find((platform) => platform === `${process.platform}-${process.arch}`);
/** The C library for a program of another architecture: Debian's libstdc++6-arm64-cross. */
const ARM64_LIBRARIES = process.env.OTELA_TEST_ARM64_LIBRARIES ?? '/usr/aarch64-linux-gnu';
/** A PATH without Node. */
const BARE_PATH = '/nonexistent';

let directory: string;
let out: string;
/** Platforms for which Node could be downloaded. */
let made: Platform[] = [];

const at = (...parts: string[]) => join(directory, ...parts);
const npmRelease = (...args: string[]) =>
  execFileSync(NODE, [join(ROOT, 'packaging/main.ts'), ...args], { encoding: 'utf8', stdio: 'pipe' });

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'otela-packages-'));
  out = at('release');
  // The command prints the public key.
  expect(npmRelease('--new-key', at('key.pem')).trim()).toMatch(/^[\w-]{43}$/);
  for (const platforms of [PLATFORMS, OWN === undefined ? [] : [OWN], []]) {
    const named = platforms.length === 0 ? ['none'] : platforms;
    try {
      const built = process.env[BUILT_VARIABLE] === undefined ? [] : ['--no-build'];
      const flags = [
        ...built,
        ...named.flatMap((name) => ['--platform', name]),
        '--without',
        'image',
        '--without',
        'wheel',
      ];
      console.log(npmRelease('--key', at('key.pem'), '--out', out, ...flags));
      made = [...platforms];
      break;
    } catch (error) {
      if (platforms.length === 0) throw error;
      console.warn(`no single files for ${platforms.join(', ')}: ${errorText(error)}`);
    }
  }
  // The package includes its dependencies, so no registry is used.
  await mkdir(at('prefix'));
  const install = ['install', '--prefix', at('prefix'), '--offline', '--no-audit', '--no-fund'];
  const file = join(out, `opentela-${versionHere}.tgz`);
  execFileSync('npm', [...install, file], { cwd: at('prefix'), encoding: 'utf8', stdio: 'pipe' });
});
afterAll(() => rm(directory, { recursive: true, force: true }));
afterEach(async () => {
  vi.unstubAllEnvs();
  await endAll();
});

const versionHere = z
  .object({ version: z.string() })
  .parse(JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'))).version;

const installedProgram = (name: string) => at('prefix/node_modules/.bin', name);
/** Path of a file of the installed package. */
const installedFile = (path: string) => at('prefix/node_modules/opentela', path);

async function gatewayThatAsks(): Promise<Gateway> {
  const gateway = await Gateway.start({ main: installedProgram('otela-gateway') });
  const ready = await (await fetch(`${gateway.url}/readyz`)).json();
  expect(ready).toMatchObject({ signed_agents: { required: true, keys: 1 } });
  return gateway;
}

async function agentAt(gateway: Gateway, how: Pick<AgentOptions, 'executable' | 'main' | 'args' | 'env'>) {
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const token = await gateway.createJoinToken();
  return startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, ...how });
}

async function completion(gateway: Gateway): Promise<string> {
  const headers = { authorization: `Bearer ${await gateway.createKey()}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'hello' }] });
  const response = await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers, body });
  const text = await response.text();
  expect([response.status, text]).toEqual([200, expect.stringContaining('chat.completion')]);
  return text;
}

/** A directory with this machine's single file under its usual name, and the files in `more` of the release. */
async function downloaded(name: string, platform: Platform, more: string[]): Promise<string> {
  await mkdir(at(name));
  const program = at(name, 'otela-agent');
  await copyFile(join(out, singleFileName(platform)), program);
  for (const file of more) await copyFile(join(out, file), at(name, file));
  return program;
}

it('ordinary tools check what was downloaded: sha256sum the files, openssl who signed', async ({ skip }) => {
  const checked = spawnSync('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], { cwd: out, encoding: 'utf8' });
  expect([checked.status, checked.stdout, checked.stderr]).toEqual([0, '', '']);
  const sums = await readFile(join(out, 'SHA256SUMS'), 'utf8');
  const listed = ['manifest.json', `opentela-${versionHere}.tgz`, `opentela-seal-${versionHere}.tgz`];
  for (const name of [...listed, ...made.map(singleFileName)]) expect(sums).toContain(`  ${name}\n`);

  skip(which('openssl') === undefined, 'no openssl here');
  const verify = (file: string) =>
    spawnSync(
      'openssl',
      ['pkeyutl', '-verify', '-pubin', '-inkey', 'release.pub', '-rawin', '-in', file, '-sigfile', 'SHA256SUMS.sig'],
      { cwd: out, encoding: 'utf8' },
    );
  expect(verify('SHA256SUMS')).toMatchObject({ status: 0, stdout: 'Signature Verified Successfully\n' });
  await writeFile(at('changed-sums'), sums.replace('0', '1'));
  expect(verify(at('changed-sums')).status).toBe(1);
});

it('a single file asks for no newer libraries than the documentation says, and holds no tables for debuggers', async ({
  skip,
}) => {
  skip(made.length === 0, 'no single file was made');
  const docs = await readFile(join(ROOT, 'docs/install.md'), 'utf8');
  expect(docs).toContain(`glibc ${FLOOR.GLIBC}`);
  for (const platform of made) {
    const program = await readFile(join(out, singleFileName(platform)));
    expect(`linux-${machineOf(program)}`).toBe(platform);
    expect(newestNeeded(program)).toEqual(FLOOR);
    expect(program.readUInt16LE(60)).toBe(0);
    expect((await stat(join(out, singleFileName(platform)))).mode & 0o111).toBe(0o111);
  }
});

it('no single file is made of what is no Node, holds a program already, or asks for a newer glibc', async ({
  skip,
}) => {
  if (OWN === undefined) return skip('no Node for this machine');
  const blob = Buffer.from('a program');
  expect(() => singleFile(Buffer.from('#!/bin/sh'.padEnd(100)), blob)).toThrow('not an ELF program');
  const node = await readFile(NODE);
  const made = singleFile(node, blob);
  expect(() => singleFile(made, blob)).toThrow('no place for an embedded program');
  const symbol = Buffer.from(`GLIBC_${FLOOR.GLIBC}\0`);
  for (let found = node.indexOf(symbol); found >= 0; found = node.indexOf(symbol, found + 1))
    node.write('9.99', found + 6);
  expect(() => singleFile(node, blob)).toThrow('requires GLIBC_9.99');
});

it('the single file runs without Node, and joins with the manifest beside it; a changed one and one alone are refused', async ({
  skip,
}) => {
  if (OWN === undefined || !made.includes(OWN)) return skip('no single file for this machine');
  const manifest = ['manifest.json', 'manifest.sig'];
  const env = { PATH: BARE_PATH };
  const program = await downloaded('whole', OWN, manifest);
  // NODE_OPTIONS, which are for the user's own Node, do not affect the single file.
  const told = { ...env, NODE_OPTIONS: '--require /nowhere/hook.cjs' };
  expect(execFileSync(program, ['version'], { encoding: 'utf8', env: told })).toBe(`otela-agent ${versionHere}\n`);
  const gateway = await gatewayThatAsks();
  await agentAt(gateway, { executable: program, env });
  await gateway.serving(1, 15_000, MODEL);
  await completion(gateway);

  const changed = await downloaded('changed', OWN, manifest);
  await appendFile(changed, '\n');
  const refused = await agentAt(gateway, { executable: changed, env });
  expect((await refused.end(20_000)).code).toBe(REFUSED);
  expect(refused.output).toContain('not the agent of release');

  const alone = await downloaded('alone', OWN, []);
  const unknown = await agentAt(gateway, { executable: alone, env });
  expect((await unknown.end(20_000)).code).toBe(REFUSED);
  expect(unknown.output).toContain('no manifest');

  await agentAt(gateway, { executable: alone, env: { ...env, OTELA_RELEASE_DIR: out } });
  await gateway.serving(2, 15_000, MODEL);
  const lost = await agentAt(gateway, { executable: alone, env, args: ['--release-dir', directory] });
  expect((await lost.end(20_000)).code).toBe(2);
  expect(lost.output).toContain(`there is no manifest.json in ${directory}`);
});

it('gateway and agent of the npm package run where it was installed, and the gateway admits the agent', async () => {
  const version = execFileSync(installedProgram('otela-agent'), ['version'], { encoding: 'utf8' });
  expect(version).toBe(`otela-agent ${versionHere}\n`);
  const gateway = await gatewayThatAsks();
  expect(await (await fetch(gateway.url)).text()).toContain('<script');
  await agentAt(gateway, { executable: installedProgram('otela-agent') });
  await gateway.serving(1, 15_000, MODEL);
  await completion(gateway);
});

it('on a machine without a GPU the mock engine of the npm package answers', async () => {
  const gateway = await gatewayThatAsks();
  const command = [installedProgram('otela-mock-engine'), '--port', String(await freePort()), '--model', MODEL];
  const main = installedFile('dist/otela-agent.js');
  const agent = await startAgent({ gateways: [gateway.url], token: await gateway.createJoinToken(), main, command });
  await agent.line(/\bserving\b/, 20_000);
  await gateway.serving(1, 20_000, MODEL);
  expect(await completion(gateway)).toContain('not a language model');
  const help = execFileSync(installedProgram('otela-mock-engine'), ['--help'], { encoding: 'utf8' });
  expect(help).toContain('otela-mock-engine --port 8000 --model NAME');
});

it('a machine without Python gets no wheel, and is told why', async () => {
  vi.stubEnv('PATH', BARE_PATH);
  await expect(wheel(join(ROOT, 'clients/python'), out, at('no-cache'), 0)).rejects.toThrow('there is no python3 here');
});

it('the file for arm64 runs, with pages of 64 KiB too, where this machine can emulate that', async ({ skip }) => {
  skip(!made.includes('linux-arm64'), 'its Node could not be had');
  const emulator = process.env.OTELA_TEST_QEMU_ARM64 ?? which('qemu-aarch64-static') ?? which('qemu-aarch64');
  if (emulator === undefined) return skip('no qemu-aarch64-static here (Debian: qemu-user-static)');
  const run = (args: string[]) =>
    spawnSync(emulator, ['-L', ARM64_LIBRARIES, ...args, join(out, 'otela-agent-linux-arm64'), 'version'], {
      encoding: 'utf8',
    });
  const first = run([]);
  skip(
    /Could not open|cannot open shared/.test(first.stderr),
    'no arm64 libraries here (Debian: libstdc++6-arm64-cross)',
  );
  for (const { status, stdout } of [first, run(['-p', '65536'])])
    expect([status, stdout]).toEqual([0, `otela-agent ${versionHere}\n`]);
});

it('its manifest tells the digest of every file, and its key is for its owner alone', async () => {
  expect((await stat(at('key.pem'))).mode & 0o777).toBe(0o600);
  const { files } = releaseManifestSchema.parse(JSON.parse(await readFile(join(out, 'manifest.json'), 'utf8')));
  const names = files.map(({ path }) => path);
  expect(names).toEqual(expect.arrayContaining(['dist/otela-agent.js', 'dist/otela-gateway.js', 'dist/gateway.json']));
  for (const { path, sha256 } of files) {
    const bytes = await readFile(path.startsWith('dist/') ? installedFile(path) : join(out, path));
    expect([path, createHash('sha256').update(bytes).digest('hex')]).toEqual([path, sha256]);
  }
  expect(() => npmRelease('--new-key', at('key.pem'))).toThrow(/EEXIST/);
});

it('an agent from a clone and one that was changed end with 69 and the reason', async () => {
  const gateway = await gatewayThatAsks();
  const fromClone = await agentAt(gateway, {});
  expect((await fromClone.end(20_000)).code).toBe(REFUSED);
  expect(fromClone.output).toContain('no manifest');

  const changed = at('changed-package');
  await cp(installedFile(''), changed, { recursive: true });
  await appendFile(join(changed, 'dist/otela-agent.js'), '\n// only a comment\n');
  const agent = await agentAt(gateway, { main: join(changed, 'dist/otela-agent.js') });
  expect((await agent.end(20_000)).code).toBe(REFUSED);
  expect(agent.output).toContain('not the agent of release');
});

it('an operator may turn it off, and the gateway says so when it starts', async () => {
  const main = installedFile('dist/otela-gateway.js');
  const gateway = await Gateway.start({ main, env: { REQUIRE_SIGNED_AGENT: 'off' } });
  await gateway.process.line(/agents need no signed release:/, 5_000);
  await agentAt(gateway, {});
  await gateway.serving(1, 15_000, MODEL);
});
