import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { copyFile, mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import { Agent, get } from 'node:https';
import { networkInterfaces } from 'node:os';
import { dirname, join } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { connect, type SecureVersion, type TLSSocket } from 'node:tls';
import { afterEach, expect, test } from 'vitest';
import { NO_OPENSSL, OPENSSL, selfSigned } from '../../support/certificate.ts';
import { Gateway } from '../../support/gateway.ts';
import { patience } from '../../support/patience.ts';
import { endAll, eventually, Managed, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const READY_MS = 20_000;

afterEach(endAll);

const cli = (...args: string[]) =>
  spawnSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(30_000) });
const start = (data: string, ...args: string[]) =>
  new Managed([NODE, GATEWAY_MAIN, 'serve', '--port', '0', '--data', data, ...args]);
const keyWorks = async (url: string, key: string) =>
  (await fetch(`${url}/v1/models`, { headers: { 'x-api-key': key } })).status;

test('port 0 prints the port it got; the admin key is made once, for its owner alone, and never handed on', async () => {
  const data = join(await temporaryDirectory(), 'new/data');
  const served = start(data);
  const [, url = ''] = await served.line(/otela-gateway ready (http:\/\/127\.0\.0\.1:\d+)\n/, READY_MS);
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  const key = readFileSync(join(data, 'admin.key'), 'utf8').trim();
  expect(key).toMatch(/^sk-otela-[\w-]{43}$/);
  expect(statSync(join(data, 'admin.key')).mode & 0o777).toBe(0o600);
  for (const dir of [data, join(data, 'objects')]) expect(statSync(dir).mode & 0o777).toBe(0o700);
  for (const file of readdirSync(data, { recursive: true, encoding: 'utf8' }))
    expect([file, statSync(join(data, file)).mode & 0o077]).toEqual([file, 0]);
  const seen = ['environ', 'cmdline'].map((name) => readFileSync(`/proc/${served.pid}/${name}`, 'utf8'));
  for (const text of [...seen, served.output]) expect(text).not.toContain(key);
});

test('the command line makes, lists and revokes keys and tokens, and a secret alone goes to stdout', async () => {
  const gateway = await Gateway.start();
  const door = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
  const made = cli('keys', 'create', '--name', 'ada', ...door);
  expect(made.stdout).toMatch(/^sk-otela-[\w-]{43}\n$/);
  expect(await keyWorks(gateway.url, made.stdout.trim())).toBe(200);
  const listed = cli('keys', 'list', '--json', ...door).stdout;
  expect(listed).not.toContain(made.stdout.trim());
  const { id } = JSON.parse(listed);
  expect(cli('keys', 'revoke', id, ...door).stdout).toContain('revoked');
  expect(
    await eventually('401', 6_000, async () =>
      (await keyWorks(gateway.url, made.stdout.trim())) === 401 ? 401 : undefined,
    ),
  ).toBe(401);
  expect(cli('tokens', 'create', '--provider', 'eth', '--cluster', 'alps', ...door).stdout).toMatch(
    /^otela-join-[\w-]{43}\n$/,
  );
  expect(cli('tokens', 'list', ...door).stdout).toMatch(/eth +alps/);
  const bad = cli('tokens', 'create', '--provider', 'Not An Id', ...door);
  expect([bad.status, bad.stderr]).toEqual([1, expect.stringContaining('provider')]);
});

test('kill -9 of everything and a new start keep what was stored', async () => {
  const gateway = await Gateway.start();
  const key = await gateway.createKey('kept');
  await gateway.kill9();
  await gateway.restart();
  expect(await keyWorks(gateway.url, key)).toBe(200);
});

test('copies that SQLite makes while the gateway runs are a gateway, elsewhere', async () => {
  const gateway = await Gateway.start();
  const key = await gateway.createKey('kept');
  const copy = join(await temporaryDirectory(), 'copy');
  const files = (await readdir(gateway.data, { recursive: true })).filter((name) => name.endsWith('.sqlite'));
  expect(files.length).toBeGreaterThan(2);
  for (const file of files) {
    await mkdir(dirname(join(copy, file)), { recursive: true });
    await backup(new DatabaseSync(join(gateway.data, file), { readOnly: true }), join(copy, file));
  }
  for (const file of ['admin.key', 'lock']) await copyFile(join(gateway.data, file), join(copy, file));
  const second = await Gateway.start({ data: copy });
  expect(await keyWorks(second.url, key)).toBe(200);
});

const ipv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
if (!ipv6) console.log('skipped: listening on ::1 needs IPv6 on the loopback interface');

test.each(['0.0.0.0', 'localhost', ...(ipv6 ? ['::1'] : [])])(
  'listening on %s it prints a URL that answers',
  async (host) => {
    const served = start(join(await temporaryDirectory(), 'data'), '--host', host);
    const [, url = ''] = await served.line(/otela-gateway ready (\S+)\n/, READY_MS);
    expect(url).toContain(host);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
  },
);

test('a second gateway on the same data is refused and the first goes on', async () => {
  const gateway = await Gateway.start();
  const second = start(gateway.data);
  expect(await second.end(READY_MS)).toEqual({ code: 1, signal: null });
  expect(second.output).toMatch(/Another gateway uses/);
  expect((await fetch(`${gateway.url}/readyz`)).status).toBe(200);
});

test('a directory of somebody else is left as it is', async () => {
  const data = await temporaryDirectory();
  await writeFile(join(data, 'thesis.tex'), '');
  const { mode } = statSync(data);
  const refused = start(data);
  expect((await refused.end(READY_MS)).code).toBe(1);
  expect(refused.output).toContain('is not empty');
  expect([statSync(data).mode, existsSync(join(data, 'lock'))]).toEqual([mode, false]);
});

test('wrong use is 2 and says what would be right; a taken port is told', async () => {
  for (const args of [
    [],
    ['dance'],
    ['serve', '--prot', '1'],
    ['serve', '--port', 'http'],
    ['serve', '--tls-cert', 'x'],
    ['keys'],
  ]) {
    const { status, stderr } = cli(...args);
    expect([args, status, stderr]).toEqual([args, 2, expect.stringContaining('otela-gateway')]);
  }
  const gateway = await Gateway.start();
  const data = await temporaryDirectory();
  const taken = new Managed([
    NODE,
    GATEWAY_MAIN,
    'serve',
    '--port',
    String(gateway.port),
    '--data',
    join(data, 'data'),
  ]);
  expect((await taken.end(READY_MS)).code).toBe(1);
  expect(taken.output).toContain(`127.0.0.1:${gateway.port} is in use by another process`);
  expect(taken.output).not.toContain('EADDRINUSE');
});

test.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('%s ends it with 0, open tunnels or not', async (signal) => {
  const gateway = await Gateway.start();
  const idle = await fetch(`${gateway.url}/healthz`, { headers: { connection: 'keep-alive' } });
  await idle.text();
  gateway.process.signal(signal);
  expect(await gateway.process.end(5_000)).toEqual({ code: 0, signal: null });
  await expect(fetch(`${gateway.url}/healthz`)).rejects.toThrow();
});

test('a signal during the start leaves nothing behind', async () => {
  const data = join(await temporaryDirectory(), 'data');
  const early = start(data);
  await eventually('its lock', READY_MS, () => (existsSync(join(data, 'lock')) ? true : undefined));
  early.signal('SIGTERM');
  expect((await early.end(READY_MS)).code).toBe(0);
  await start(data).line(/otela-gateway ready/, READY_MS);
});

test('TLS ends at the public socket, and SIGHUP takes a new certificate without a break', async ({ skip }) => {
  skip(!OPENSSL, NO_OPENSSL);
  const dir = await temporaryDirectory();
  const { cert, key } = selfSigned(dir, 'first');
  const served = start(join(dir, 'data'), '--tls-cert', cert, '--tls-key', key);
  const [, url = ''] = await served.line(/otela-gateway ready (https:\/\/\S+)/, READY_MS);
  expect(await subjectOf(url)).toBe('first');
  selfSigned(dir, 'second');
  served.signal('SIGHUP');
  await served.line(/TLS files read again/, 5_000);
  expect(await subjectOf(url)).toBe('second');
  await writeFile(key, 'no key');
  served.signal('SIGHUP');
  await served.line(/the old ones remain in use/, 5_000);
  expect(await subjectOf(url)).toBe('second');
  // Plain HTTP on the TLS port gets no response, and does not disturb other connections.
  await expect(fetch(url.replace('https', 'http'))).rejects.toThrow();
  expect(await subjectOf(url)).toBe('second');
});

test('TLS 1.2 and 1.3 are taken, and no other, whatever else Node would take, before and after a new certificate', async ({
  skip,
}) => {
  skip(!OPENSSL, NO_OPENSSL);
  const dir = await temporaryDirectory();
  const { cert, key } = selfSigned(dir, 'first');
  const command = [
    NODE,
    '--tls-min-v1.0',
    '--tls-cipher-list=DEFAULT@SECLEVEL=0',
    GATEWAY_MAIN,
    'serve',
    '--port',
    '0',
  ];
  const served = new Managed([...command, '--data', join(dir, 'data'), '--tls-cert', cert, '--tls-key', key]);
  const [, port] = await served.line(/otela-gateway ready https:\/\/\S+:(\d+)/, READY_MS);
  const taken = async () => {
    const versions: string[] = [];
    for (const version of ['TLSv1', 'TLSv1.1', 'TLSv1.2', 'TLSv1.3'] as const)
      if (await handshakes(Number(port), version)) versions.push(version);
    return versions;
  };
  expect(await taken()).toEqual(['TLSv1.2', 'TLSv1.3']);
  selfSigned(dir, 'second');
  served.signal('SIGHUP');
  await served.line(/TLS files read again/, 5_000);
  expect(await taken()).toEqual(['TLSv1.2', 'TLSv1.3']);
});

function handshakes(port: number, version: SecureVersion): Promise<boolean> {
  return new Promise((resolve) => {
    const versions = { minVersion: version, maxVersion: version, ciphers: 'DEFAULT@SECLEVEL=0' };
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false, ...versions });
    socket.once('secureConnect', () => resolve(socket.getProtocol() === version));
    socket.once('error', () => resolve(false));
    socket.once('close', () => resolve(false));
    socket.once('secureConnect', () => socket.destroy());
  });
}

test('a key of another certificate is told with both files’ names, before anything is made', async ({ skip }) => {
  skip(!OPENSSL, NO_OPENSSL);
  const dir = await temporaryDirectory();
  const { cert } = selfSigned(dir, 'one');
  const { key } = selfSigned(await temporaryDirectory(), 'other');
  const served = start(join(dir, 'data'), '--tls-cert', cert, '--tls-key', key);
  expect((await served.end(READY_MS)).code).toBe(1);
  expect(served.output).toContain(`${cert} and ${key} are not a certificate and its key`);
  await expect(stat(join(dir, 'data'))).rejects.toThrow('ENOENT');
});

test('a value of the environment that does not fit is refused by its name, before anything is made', async () => {
  const dir = join(await temporaryDirectory(), 'data');
  const served = new Managed([NODE, GATEWAY_MAIN, 'serve', '--data', dir, '--port', '0'], {
    env: { BODY_LIMIT_BYTES: '32M' },
  });
  expect((await served.end(READY_MS)).code).toBe(1);
  expect(served.output).toContain('BODY_LIMIT_BYTES must be a whole number');
  await expect(stat(dir)).rejects.toThrow('ENOENT');
});

test('an empty --host is wrong use', async () => {
  const served = start(join(await temporaryDirectory(), 'data'), '--host', '');
  expect((await served.end(READY_MS)).code).toBe(2);
});

/** Common name of the certificate of a URL that answers. */
function subjectOf(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    get(`${url}/healthz`, { agent: new Agent(), rejectUnauthorized: false }, (response) => {
      const { subject } = (response.socket as TLSSocket).getPeerCertificate();
      response.resume().on('end', () => resolve(String(subject.CN)));
    }).on('error', reject);
  });
}
