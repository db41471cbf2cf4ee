/** A release as it is handed out: built, signed, installed, run. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { appendFile, cp, mkdir, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { manifestSchema } from '../../shared/release/release.ts';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { MODEL } from '../support/house.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { NODE, ROOT } from '../support/where.ts';

const REFUSED = 69;
let directory: string;
let out: string;
let publicKey: string;

const npmRelease = (...args: string[]) =>
  execFileSync(NODE, [join(ROOT, 'packaging/main.ts'), ...args], { encoding: 'utf8', stdio: 'pipe' });

beforeAll(async () => {
  // Below the clone, where its packages are found.
  await mkdir(join(ROOT, 'dist'), { recursive: true });
  directory = await mkdtemp(join(ROOT, 'dist/release-'));
  out = join(directory, 'release');
  publicKey = npmRelease('--new-key', join(directory, 'key.pem')).trim();
  npmRelease('--key', join(directory, 'key.pem'), '--out', out, '--platform', 'none');
});
afterAll(() => rm(directory, { recursive: true, force: true }));
afterEach(endAll);

const gatewayOf = (release: string, env: Record<string, string> = {}) =>
  Gateway.start({ main: join(release, 'dist/otela-gateway.js'), env });

async function agentOf(gateway: Gateway, main?: string) {
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const token = await gateway.createJoinToken();
  return startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, ...(main === undefined ? {} : { main }) });
}

it('its manifest tells the digest of every file, and its key is for its owner alone', async () => {
  expect((await stat(join(directory, 'key.pem'))).mode & 0o777).toBe(0o600);
  const { files } = manifestSchema.parse(JSON.parse(await readFile(join(out, 'manifest.json'), 'utf8')));
  const names = files.map(({ path }) => path);
  expect(names).toEqual(expect.arrayContaining(['dist/otela-agent.js', 'dist/otela-gateway.js', 'package.json']));
  for (const { path, sha256 } of files) {
    const bytes = await readFile(join(out, path));
    expect([path, createHash('sha256').update(bytes).digest('hex')]).toEqual([path, sha256]);
  }
  expect(() => npmRelease('--new-key', join(directory, 'key.pem'))).toThrow(/EEXIST/);
});

it('the released gateway admits the released agent; one from a clone and one that was changed end with 69 and the reason', async () => {
  const gateway = await gatewayOf(out);
  expect(await (await fetch(`${gateway.url}/readyz`)).json()).toMatchObject({
    signed_agents: { required: true, keys: 1 },
  });
  await agentOf(gateway, join(out, 'dist/otela-agent.js'));
  await gateway.serving(1, 15_000, MODEL);

  const fromClone = await agentOf(gateway);
  expect((await fromClone.end(20_000)).code).toBe(REFUSED);
  expect(fromClone.output).toContain('no manifest');

  const changed = join(directory, 'changed');
  await cp(out, changed, { recursive: true });
  await appendFile(join(changed, 'dist/otela-agent.js'), '\n// only a comment\n');
  const agent = await agentOf(gateway, join(changed, 'dist/otela-agent.js'));
  expect((await agent.end(20_000)).code).toBe(REFUSED);
  expect(agent.output).toContain('not the agent of release');
});

it('an operator may turn it off, and the gateway says so when it starts', async () => {
  const gateway = await gatewayOf(out, { REQUIRE_SIGNED_AGENT: 'off' });
  await gateway.process.line(/agents need no signed release here/, 5_000);
  await agentOf(gateway);
  await gateway.serving(1, 15_000, MODEL);
});

it('wrangler’s production environment asks for signed agents, marked providers, and has every binding of the other one', async () => {
  const toml = await readFile(join(ROOT, 'wrangler.toml'), 'utf8');
  const [clone = '', production = ''] = toml.split('[env.production]');
  expect(production).toMatch(/^REQUIRE_SIGNED_AGENT = "on"$/m);
  expect(production).toMatch(/^DEFAULT_TRUST = "marked"$/m);
  expect(clone).not.toContain('REQUIRE_SIGNED_AGENT');
  const bindings = (text: string) => [...text.matchAll(/^(class_name|binding) = "(\w+)"$/gm)].map(([, , name]) => name);
  expect(bindings(production)).toEqual(expect.arrayContaining(bindings(clone)));
  expect(bindings(clone).length).toBeGreaterThan(5);
  expect(publicKey).toMatch(/^[\w-]{43}$/);
});
