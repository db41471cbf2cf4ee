/** `curl -fsSL URL/install | sh`: run by dash, with a program in place of the agent. */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Gateway } from '../../support/gateway.ts';
import { endAll } from '../../support/processes.ts';

const PROGRAM = '#!/bin/sh\necho otela-agent 9.9.9\n';
const NAME = `otela-agent-linux-${process.arch}`;
let gateway: Gateway;
let release: string;
beforeAll(async () => {
  release = mkdtempSync(join(tmpdir(), 'otela-release-'));
  gateway = await Gateway.start({ args: ['--release', release] });
});
afterAll(endAll);

const get = (path: string, init?: RequestInit) => fetch(`${gateway.url}${path}`, init);
/** Runs the installer in an empty home directory. */
async function install(env: Record<string, string> = {}, change = (script: string) => script) {
  const home = mkdtempSync(join(tmpdir(), 'otela-home-'));
  const script = change(await (await get('/install')).text());
  const result = spawnSync('dash', [], {
    input: script,
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: home, ...env },
  });
  return { home, code: result.status, out: result.stdout, err: result.stderr };
}

it('without a release, the gateway says who can change that', async () => {
  const response = await get('/install');
  expect([response.status, await response.text()]).toEqual([404, expect.stringContaining('--release DIRECTORY')]);
});

it('installs the agent, its configuration and its token, and keeps a configuration that exists', async () => {
  writeFileSync(join(release, NAME), PROGRAM);
  const { home, code, out, err } = await install({ OTELA_TOKEN: 'otela-join-secret' });
  expect([code, err]).toEqual([0, '']);
  expect(out).toContain('otela-agent 9.9.9');
  expect(out).not.toContain('secret');
  expect(execFileSync(join(home, '.local/bin/otela-agent'), { encoding: 'utf8' })).toBe('otela-agent 9.9.9\n');
  expect(readFileSync(join(home, '.otela-token'), 'utf8')).toBe('otela-join-secret\n');
  expect(statSync(join(home, '.otela-token')).mode & 0o777).toBe(0o600);
  const config = readFileSync(join(home, '.config/otela-agent/config'), 'utf8');
  expect(config).toBe(`gateway = ${gateway.url}\ntoken-file = ~/.otela-token\n`);
  mkdirSync(join(home, 'tools'));
  writeFileSync(join(home, '.config/otela-agent/config'), 'labels = a=b\n');
  const again = await install({ HOME: home, OTELA_DIR: join(home, 'tools') });
  expect([again.code, existsSync(join(home, 'tools/otela-agent'))]).toEqual([0, true]);
  expect(readFileSync(join(home, '.config/otela-agent/config'), 'utf8')).toBe('labels = a=b\n');
});

it('brings the proofs of a signed release', async () => {
  for (const name of ['manifest.json', 'manifest.sig', 'release.pub']) writeFileSync(join(release, name), name);
  const { home, code } = await install();
  expect(code).toBe(0);
  expect(readFileSync(join(home, '.local/share/otela/manifest.sig'), 'utf8')).toBe('manifest.sig');
});

it('installs nothing that is damaged, does not start, or is for another machine', async () => {
  const sha = createHash('sha256').update(PROGRAM).digest('hex');
  const damaged = await install({}, (script) => script.replaceAll(sha, 'f'.repeat(64)));
  expect([damaged.code, damaged.err]).toEqual([1, expect.stringContaining('another digest')]);
  expect(existsSync(join(damaged.home, '.local/bin/otela-agent'))).toBe(false);
  const half = await install({}, (script) => script.slice(0, script.lastIndexOf('main')));
  expect([half.code, half.out]).toEqual([0, '']);
  writeFileSync(join(release, NAME), '#!/bin/sh\necho no glibc >&2; exit 1\n');
  const broken = await install();
  expect([broken.code, broken.err]).toEqual([1, expect.stringContaining('no glibc')]);
  const other = await install({}, (script) => script.replace('uname -m', 'echo riscv64'));
  expect([other.code, other.err]).toEqual([1, expect.stringContaining('has no agent for Linux')]);
});

it('serves no other file, and writes no host name into the script that a shell would run', async () => {
  writeFileSync(join(release, 'secret'), 'secret');
  for (const path of ['/install/secret', '/install/..%2fadmin.key', '/install/SHA256SUMS'])
    expect((await get(path)).status).toBe(404);
  const host = `a'$(id)'`;
  const raw = spawnSync('curl', ['-s', '-H', `host: ${host}`, `${gateway.url}/install`], { encoding: 'utf8' });
  expect(raw.stdout).not.toContain('$(id)');
  const proxied = await get('/install', { headers: { 'x-forwarded-proto': 'https' } });
  expect(await proxied.text()).toContain(`gateway='https://127.0.0.1`);
});
