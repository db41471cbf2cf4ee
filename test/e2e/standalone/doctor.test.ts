/** `otela-gateway doctor`: each obstacle is created, and found with its fix; the check changes nothing. */
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { newestLayout } from '../../../gateway/hosts/node/data/directory-version.ts';
import { checkTls } from '../../../gateway/hosts/node/doctor/tls-checks.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll, freePort, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const findingsSchema = z.array(
  z.object({ what: z.string(), verdict: z.string(), found: z.string(), fix: z.string().optional() }),
);
const DAY_MS = 86_400_000;

afterEach(endAll);

/** Runs the command asynchronously, because servers of this test answer during the check. */
async function doctor(...args: string[]) {
  const { promise, resolve } = Promise.withResolvers<{ status: number; stdout: string }>();
  execFile(NODE, [GATEWAY_MAIN, 'doctor', '--json', ...args], (error, stdout) =>
    resolve({ status: error === null ? 0 : Number(error.code), stdout }),
  );
  const { status, stdout } = await promise;
  const findings = findingsSchema.parse(JSON.parse(stdout));
  return { status, findings, of: (what: string) => findings.find((one) => one.what === what) };
}

test('nothing is in the way of a first start, and looking makes nothing', async () => {
  const parent = await temporaryDirectory();
  const { status, of, findings } = await doctor('--data', join(parent, 'deep/below/data'), '--port', '0');
  expect([status, findings.filter(({ verdict }) => verdict === 'bad')]).toEqual([0, []]);
  expect(of('data directory')?.found).toContain('the first start creates it');
  expect(readdirSync(parent)).toEqual([]);
});

test('beside a gateway that runs it finds that gateway, at its port and at its public URL', async () => {
  const gateway = await Gateway.start();
  await gateway.admin('PATCH', 'settings', { public_url: gateway.url });
  const port = String(gateway.port);
  const { status, of } = await doctor('--data', gateway.data, '--port', port);
  expect(status).toBe(0);
  expect(of('gateway')?.found).toBe('a gateway runs on this directory');
  expect(of(`port ${port}`)).toMatchObject({
    verdict: 'good',
    found: expect.stringMatching(/process \d+ \(node\)$/),
  });
  expect(of('public URL')).toMatchObject({ verdict: 'good' });
  expect(of('admin key')).toMatchObject({ verdict: 'good' });
  expect(of('data')?.found).toBe(`layout version ${newestLayout()}; accounts, registry and alarms are intact`);
  expect((await fetch(`${gateway.url}/readyz`)).status).toBe(200);
});

test('rights that are too wide, a lost key, a clock set back and a root key elsewhere are told with their fixes', async () => {
  const gateway = await Gateway.start();
  await gateway.stop();
  const { data } = gateway;
  chmodSync(data, 0o755);
  writeFileSync(join(data, 'admin.key'), 'short\n');
  const later = new Date(Date.now() + 3_600_000);
  utimesSync(join(data, 'objects'), later, later);
  execFileSync('rm', [join(data, 'issuer/root.key')]);
  writeFileSync(join(data, 'issuer/gateway.cert'), 'damaged\n');
  const { status, of } = await doctor('--data', data, '--port', '0');
  expect(status).toBe(1);
  expect(of('data directory')).toMatchObject({ verdict: 'odd', fix: `chmod 700 ${data}` });
  expect(of('admin key')).toMatchObject({ verdict: 'bad', found: expect.stringContaining('contains no key') });
  expect(of('clock')).toMatchObject({ verdict: 'bad', found: expect.stringMatching(/^was 3[56]\d\d s later/) });
  expect(of('issuer')).toMatchObject({ verdict: 'bad', fix: expect.stringContaining('root.key') });
});

test('a directory of something else, and a port that somebody else has', async () => {
  const home = await temporaryDirectory();
  writeFileSync(join(home, 'thesis.tex'), '');
  const other = createServer((_, response) => response.end('<html>'));
  atEnd(() => void other.close().closeAllConnections());
  const port = await freePort();
  await new Promise<void>((resolve) => other.listen(port, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${port}`;
  const { status, of } = await doctor('--data', home, '--port', String(port), '--public-url', url);
  expect(status).toBe(1);
  expect(of('data directory')).toMatchObject({
    verdict: 'bad',
    found: expect.stringContaining('contains other files'),
  });
  expect(of(`port ${port}`)).toMatchObject({
    verdict: 'bad',
    found: `is used by process ${process.pid} (node)`,
  });
  expect(of('public URL')).toMatchObject({ verdict: 'bad', found: expect.stringContaining('not an OpenTela gateway') });
  const nobody = await doctor(
    '--data',
    join(home, 'new'),
    '--port',
    '0',
    '--public-url',
    `http://127.0.0.1:${await freePort()}`,
  );
  expect(nobody.of('public URL')).toMatchObject({
    verdict: 'bad',
    found: expect.stringContaining('cannot be reached'),
  });
});

test('of a process that has the port its program is told, not its arguments', async () => {
  const code =
    "require('node:http').createServer().listen(0, '127.0.0.1', function () { console.log(this.address().port) })";
  const other = spawn(NODE, ['-e', code, '--', '--password=hunter2'], { stdio: ['ignore', 'pipe', 'inherit'] });
  atEnd(() => void other.kill('SIGKILL'));
  const [port] = await once(other.stdout, 'data');
  const { of } = await doctor('--data', join(await temporaryDirectory(), 'data'), '--port', String(port).trim());
  const found = of(`port ${String(port).trim()}`)?.found;
  expect(found).toBe(`is used by process ${other.pid} (node)`);
});

test('few open files are told', async () => {
  const data = join(await temporaryDirectory(), 'data');
  const limited = `ulimit -n 512; exec ${NODE} ${GATEWAY_MAIN} doctor --json --port 0 --data ${data}`;
  const { status, stdout } = spawnSync('bash', ['-c', limited], { encoding: 'utf8' });
  const found = findingsSchema.parse(JSON.parse(stdout)).find(({ what }) => what === 'open files');
  expect([status, found]).toEqual([1, expect.objectContaining({ verdict: 'bad', found: '512 at most' })]);
});

let pems: string;
afterAll(() => rmSync(pems, { recursive: true }));
beforeAll(() => {
  pems = mkdtempSync(join(tmpdir(), 'otela-tls-'));
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: pems, stdio: 'pipe' });
  const ec = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  openssl('req', '-x509', ...ec, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=A CA', '-days', '3650');
  openssl(
    'req',
    ...ec,
    '-keyout',
    'gw.key',
    '-out',
    'gw.csr',
    '-subj',
    '/CN=gw',
    '-addext',
    'subjectAltName=DNS:gw.example.org',
  );
  openssl(
    'x509',
    '-req',
    '-in',
    'gw.csr',
    '-CA',
    'ca.pem',
    '-CAkey',
    'ca.key',
    '-out',
    'gw.pem',
    '-days',
    '90',
    '-copy_extensions',
    'copy',
  );
  execFileSync('sh', ['-c', 'cat gw.pem ca.pem > chain.pem; cat gw.pem gw.pem > wrong-chain.pem; chmod 600 *.key'], {
    cwd: pems,
  });
});

test.each([
  ['all is well', 'chain.pem', 'gw.key', 'https://gw.example.org', 0, []],
  ['it ends soon', 'chain.pem', 'gw.key', undefined, 80, ['odd TLS certificate']],
  ['it has ended', 'chain.pem', 'gw.key', undefined, 100, ['bad TLS certificate']],
  ['it has not begun', 'chain.pem', 'gw.key', undefined, -2, ['bad TLS certificate']],
  ['it is for another name', 'chain.pem', 'gw.key', 'https://llm.example.org', 0, ['bad TLS names']],
  ['the chain is missing', 'gw.pem', 'gw.key', undefined, 0, ['odd TLS chain']],
  ['the chain is another', 'wrong-chain.pem', 'gw.key', undefined, 0, ['bad TLS chain']],
  ['nobody trusts it', 'ca.pem', 'ca.key', undefined, 0, ['odd TLS chain']],
  ['there is no such file', 'no.pem', 'gw.key', undefined, 0, ['bad TLS']],
  ['a key is no certificate', 'gw.key', 'gw.key', undefined, 0, ['bad TLS']],
] as const)('TLS files: %s', async (_, cert, key, url, days, expected) => {
  const files = { cert: join(pems, cert), key: join(pems, key) };
  const findings = await checkTls(files, url, Date.now() + days * DAY_MS);
  const wrong = findings.filter(({ verdict }) => verdict !== 'good');
  expect(wrong.map(({ verdict, what }) => `${verdict} ${what}`)).toEqual(expected);
  for (const { fix } of wrong) expect(fix).toMatch(/\w/);
});

test('TLS files: a key of another certificate, and one that anybody may read', async () => {
  const files = { cert: join(pems, 'chain.pem'), key: join(pems, 'ca.key') };
  expect(existsSync(files.key)).toBe(true);
  const [mismatch] = (await checkTls(files, undefined, Date.now())).filter(({ verdict }) => verdict === 'bad');
  expect(mismatch).toMatchObject({ what: expect.stringContaining('TLS'), verdict: 'bad' });
  chmodSync(join(pems, 'gw.key'), 0o644);
  const open = await checkTls({ cert: files.cert, key: join(pems, 'gw.key') }, undefined, Date.now());
  expect(open).toContainEqual(expect.objectContaining({ what: 'TLS key', verdict: 'odd' }));
});
