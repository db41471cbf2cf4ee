import { spawnSync } from 'node:child_process';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import {
  keyNames,
  openIssuer,
  revoke,
  rotate,
  workerSecrets,
} from '../../../gateway/hosts/node/issuer/issuer-files.ts';
import { IssuerError, issuerOf } from '../../../gateway/issuer/issuer.ts';
import { keyName } from '../../../shared/lattice/gateway-certificate.ts';
import { Gateway } from '../../support/gateway.ts';
import { patience } from '../../support/patience.ts';
import { descendants } from '../../support/process-table.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const NOW_S = 1_795_000_000;
const DAY_S = 86_400;

afterEach(endAll);

const cli = (...args: string[]) =>
  spawnSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(30_000) });
const fresh = async () => join(await temporaryDirectory(), 'issuer');

test('The first start makes the keys, for their owner alone; the next ones find the same issuer', async () => {
  const dir = await fresh();
  const first = await openIssuer(dir, NOW_S);
  for (const name of await readdir(dir)) expect(statSync(join(dir, name)).mode & 0o777).toBe(0o600);
  expect(workerSecrets(await openIssuer(dir, NOW_S + DAY_S))).toEqual(workerSecrets(first));
});

test('A certificate is renewed long before it ends, for the same key', async () => {
  const dir = await fresh();
  const first = await openIssuer(dir, NOW_S);
  const later = await openIssuer(dir, NOW_S + 150 * DAY_S);
  expect(later.gateway.key).toBe(first.gateway.key);
  expect(later.certificate.notAfter).toBeGreaterThan(first.certificate.notAfter);
});

test('Without the root key at hand it serves until the certificate ends, and then says what it needs', async () => {
  const dir = await fresh();
  const first = await openIssuer(dir, NOW_S);
  await rename(join(dir, 'root.key'), join(dir, '../root.key'));
  expect((await openIssuer(dir, NOW_S + 390 * DAY_S)).gateway).toEqual(first.gateway);
  await expect(rotate(await openIssuer(dir, NOW_S), NOW_S)).rejects.toThrow(/root\.key/);
  await expect(openIssuer(dir, NOW_S + 500 * DAY_S)).rejects.toThrow(IssuerError);
  await rename(join(dir, '../root.key'), join(dir, 'root.key'));
  expect((await openIssuer(dir, NOW_S + 500 * DAY_S)).gateway.key).toBe(first.gateway.key);
});

test('A lost gateway key is made anew by the root; a lost root key is never replaced in silence', async () => {
  const dir = await fresh();
  const first = await openIssuer(dir, NOW_S);
  await rm(join(dir, 'gateway.key'));
  const second = await openIssuer(dir, NOW_S);
  expect(second.certificate.keyName).not.toBe(first.certificate.keyName);
  expect(keyName(second.certificate.root)).toBe(keyName(first.certificate.root));
  await Promise.all(['root.key', 'gateway.key', 'gateway.cert'].map((name) => rm(join(dir, name))));
  const other = await openIssuer(dir, NOW_S);
  expect(keyName(other.certificate.root)).not.toBe(keyName(first.certificate.root));
  await rm(join(other.dir, 'root.key'));
  await rm(join(other.dir, 'gateway.cert'));
  await expect(openIssuer(dir, NOW_S)).rejects.toThrow(/root\.key/);
});

test('A rotation keeps the former key for collecting, and forgets it when its last ticket has ended', async () => {
  const dir = await fresh();
  const first = await openIssuer(dir, NOW_S);
  const second = await rotate(first, NOW_S);
  expect(keyNames(second).retired).toEqual([first.certificate.keyName]);
  expect(issuerOf(workerSecrets(second))?.watermarks(NOW_S)).toHaveLength(2);
  const much = NOW_S + 440 * DAY_S;
  const third = await rotate(await openIssuer(dir, much), much);
  expect(keyNames(third).retired).toEqual([second.certificate.keyName]);
});

test('A revoked key is replaced, told to everybody at each start, and never kept', async () => {
  const dir = await fresh();
  const first = await openIssuer(dir, NOW_S);
  const second = await revoke(first, first.certificate.keyName, NOW_S);
  expect(second.gateway.key).not.toBe(first.gateway.key);
  expect(keyNames(second)).toEqual({ retired: [], revoked: [first.certificate.keyName] });
  expect(issuerOf(workerSecrets(second))?.revocations).toHaveLength(1);
  expect(await revoke(second, first.certificate.keyName, NOW_S + 9)).toBe(second);
  await expect(revoke(second, 'nobody', NOW_S)).rejects.toThrow(IssuerError);
  // The creation of an issuer was interrupted after its first write. The next start finishes it.
  writeFileSync(join(dir, 'gateway.key'), first.gateway.key);
  expect((await openIssuer(dir, NOW_S)).certificate.keyName).not.toBe(first.certificate.keyName);
});

test('Files that are damaged are named, not replaced', async () => {
  const dir = await fresh();
  const { gateway } = await openIssuer(dir, NOW_S);
  for (const name of ['gateway.key', 'root.key', 'gateway.cert', 'retired', 'revoked']) {
    const file = join(dir, name);
    const was = name.startsWith('re') ? '' : readFileSync(file, 'utf8');
    writeFileSync(file, 'not a key');
    if (name === 'root.key') await expect(rotate(await openIssuer(dir, NOW_S), NOW_S)).rejects.toThrow(IssuerError);
    else await expect(openIssuer(dir, NOW_S)).rejects.toThrow(IssuerError);
    expect(readFileSync(file, 'utf8')).toBe('not a key');
    writeFileSync(file, was);
  }
  writeFileSync(join(dir, 'gateway.key'), gateway.key);
  expect((await openIssuer(dir, NOW_S)).gateway).toEqual(gateway);
});

test('A gateway makes its issuer at the first start; the root key reaches no other process and no output', async () => {
  const gateway = await Gateway.start();
  const root = readFileSync(join(gateway.data, 'issuer/root.key'), 'utf8').trim();
  const shown = cli('issuer', 'show', '--data', gateway.data, '--json');
  expect(shown.stderr).toBe('');
  expect(JSON.parse(shown.stdout)).toMatchObject({ root_key_here: true, retired: [], revoked: [] });
  const rotated = cli('issuer', 'rotate', '--data', gateway.data);
  expect(rotated.stderr).toContain('Restart the gateway');
  const secrets = cli('issuer', 'secrets', '--data', gateway.data);
  for (const text of [shown.stdout, rotated.stdout, secrets.stdout]) expect(text).not.toContain(root);
  expect(issuerOf(JSON.parse(secrets.stdout))?.watermarks(NOW_S)).toHaveLength(2);
  await gateway.kill9();
  await gateway.restart();
  for (const pid of descendants(gateway.process.pid))
    expect(readFileSync(`/proc/${pid}/environ`, 'utf8')).not.toContain(root);
});

test('Wrong use of `issuer` and `peers` says how they are used', async () => {
  const data = await temporaryDirectory();
  for (const args of [['issuer'], ['issuer', 'revoke'], ['issuer', 'show', 'x'], ['peers', 'add', 'eth']])
    expect(cli(...args)).toMatchObject({ status: 2, stderr: expect.stringContaining('otela-gateway') });
  expect(cli('issuer', 'show', '--data', data)).toMatchObject({ status: 1, stderr: expect.stringContaining('init') });
  expect(cli('issuer', 'init', '--data', data).stdout).toContain('peers add NAME');
});
