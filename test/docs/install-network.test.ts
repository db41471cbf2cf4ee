/**
 * `npm ci` with this clone's .npmrc and a lock file from `npm run package-lock`, against a registry of this test:
 * through a mirror or a proxy, interrupted half way, and without a network.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { create } from 'tar';
import { afterEach, expect, it } from 'vitest';
import { outsideScript } from '../../packaging/install/npm.js';
import { archivePath, completeLock } from '../../packaging/install/package-lock.ts';
import { atEnd, endAll, Managed, temporaryDirectory } from '../support/processes.ts';
import { ROOT } from '../support/where.ts';

afterEach(endAll);

const NAMES = ['a', '@scope/b', 'c', '@scope/d', 'e'];
const VERSION = '1.0.0';
/** npm fetches several archives concurrently; one after the other, it is certain which of them arrived. */
const ONE_BY_ONE = ['--maxsockets=1', '--fetch-retries=0'];

interface Project {
  folder: string;
  cache: string;
  archives: Map<string, Buffer>;
}

/** A project that depends on each of NAMES. */
async function project(): Promise<Project> {
  const work = await temporaryDirectory('otela-registry');
  const [folder, cache] = [join(work, 'project'), join(work, 'cache')];
  const archives = new Map<string, Buffer>();
  const locked: Record<string, unknown> = {};
  await mkdir(folder);
  for (const [n, name] of NAMES.entries()) {
    const source = join(work, String(n), 'package');
    await mkdir(source, { recursive: true });
    await writeFile(join(source, 'package.json'), JSON.stringify({ name, version: VERSION }));
    const file = join(work, `${n}.tgz`);
    await create({ file, gzip: true, cwd: join(work, String(n)) }, ['package']);
    const archive = await readFile(file);
    archives.set(`/${archivePath(name, VERSION)}`, archive);
    const integrity = `sha512-${createHash('sha512').update(archive).digest('base64')}`;
    locked[`node_modules/${name}`] = { version: VERSION, integrity };
  }
  const dependencies = Object.fromEntries(NAMES.map((name) => [name, VERSION]));
  const described = { name: 'project', version: '0.0.0', dependencies };
  const lock = { ...described, lockfileVersion: 3, requires: true, packages: { '': described, ...locked } };
  await writeFile(join(folder, 'package.json'), JSON.stringify(described));
  await writeFile(
    join(folder, 'package-lock.json'),
    completeLock(JSON.stringify(lock), () => ''),
  );
  await copyFile(join(ROOT, '.npmrc'), join(folder, '.npmrc'));
  return { folder, cache, archives };
}

interface Registry {
  url: string;
  /** As received; a proxy receives whole addresses. */
  asked: string[];
}

/** Serves `archives` below `base`; breaks the connection in the middle of each archive after the first `whole` ones. */
async function registry(
  { archives }: Project,
  base: string,
  whole = () => Number.POSITIVE_INFINITY,
): Promise<Registry> {
  const asked: string[] = [];
  let served = 0;
  const pathOf = ({ url = '' }: IncomingMessage) => new URL(url, 'http://registry.test').pathname;
  const server = createServer((request, response) => {
    asked.push(request.url ?? '');
    const path = pathOf(request);
    const archive = path.startsWith(base) ? archives.get(decodeURIComponent(path.slice(base.length))) : undefined;
    if (archive === undefined) return response.writeHead(404).end();
    response.writeHead(200, { 'content-length': archive.length });
    if (served++ < whole()) return response.end(archive);
    return response.write(archive.subarray(0, archive.length / 2), () => response.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

async function npmCi({ folder, cache }: Project, ...flags: string[]): Promise<{ code: number | null; output: string }> {
  const { PATH = '' } = outsideScript({ PATH: process.env.PATH });
  const env = {
    PATH,
    HOME: folder,
    npm_config_cache: cache,
    npm_config_userconfig: '/dev/null',
    npm_config_update_notifier: 'false',
  };
  const npm = new Managed(['npm', 'ci', '--loglevel=error', ...flags], { cwd: folder, env, label: 'npm ci' });
  const { code } = await npm.end(300_000);
  return { code, output: npm.output };
}

async function installedNames({ folder }: Project): Promise<string[]> {
  const versions = NAMES.map((name) =>
    readFile(join(folder, 'node_modules', name, 'package.json'), 'utf8').catch(() => ''),
  );
  return (await Promise.all(versions))
    .map((text) => (text === '' ? '' : JSON.parse(text).name))
    .filter((name) => name !== '');
}

it('takes each archive once, and nothing else, from a mirror below a path', async () => {
  const here = await project();
  const mirror = await registry(here, '/api/npm/mirror');
  expect(await npmCi(here, `--registry=${mirror.url}/api/npm/mirror/`)).toMatchObject({ code: 0 });
  expect(mirror.asked.toSorted()).toEqual([...here.archives.keys()].map((path) => `/api/npm/mirror${path}`).toSorted());
  expect(await installedNames(here)).toEqual(NAMES);
});

it('goes on where a network failed half way, and needs none afterwards', async () => {
  const here = await project();
  let whole = 2;
  const { url, asked } = await registry(here, '', () => whole);
  expect((await npmCi(here, `--registry=${url}`, ...ONE_BY_ONE)).code).not.toBe(0);
  whole = Number.POSITIVE_INFINITY;
  asked.length = 0;
  expect(await npmCi(here, `--registry=${url}`, ...ONE_BY_ONE)).toMatchObject({ code: 0 });
  expect(asked).toHaveLength(NAMES.length - 2);
  asked.length = 0;
  expect(await npmCi(here, `--registry=${url}`, '--offline')).toMatchObject({ code: 0 });
  expect([asked, await installedNames(here)]).toEqual([[], NAMES]);
});

it('goes through a proxy', async () => {
  const here = await project();
  const proxy = await registry(here, '');
  const flags = ['--registry=http://registry.test/', `--proxy=${proxy.url}`, '--noproxy='];
  expect(await npmCi(here, ...flags)).toMatchObject({ code: 0 });
  const wanted = [...here.archives.keys()].map((path) => `http://registry.test${path}`);
  expect(proxy.asked.toSorted()).toEqual(wanted.toSorted());
});
