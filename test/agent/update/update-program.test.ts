/** The agent replaces itself only by a file of a release that the installed release's key signed. */
import { createHash, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { toolRunner } from '../../../agent/host/run-tool.ts';
import { updateProgram } from '../../../agent/update/update-program.ts';
import { releaseMessage } from '../../../shared/release/release-manifest.ts';

const NAME = `otela-agent-${process.platform}-${process.arch}`;
const program = (version: string) => `#!/bin/sh\necho otela-agent ${version}\n`;

let directory: string;
let server: Server;
let key: { publicKey: KeyObject; privateKey: KeyObject };
/** What the gateway serves, by name. */
let served: Map<string, string>;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'otela-update-'));
  key = generateKeyPairSync('ed25519');
  served = new Map();
  server = createServer((request, response) => {
    const content = served.get((request.url ?? '').replace('/gw/install/', ''));
    response.writeHead(content === undefined ? 404 : 200).end(content);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  writeFileSync(join(directory, 'otela-agent'), program('0.1.0'));
  chmodSync(join(directory, 'otela-agent'), 0o755);
  writeFileSync(join(directory, 'release.pub'), key.publicKey.export({ format: 'pem', type: 'spki' }));
});
afterEach(() => {
  rmSync(directory, { recursive: true });
  server.close();
});

function serve(version: string, given: { content?: string; by?: KeyObject; digestOf?: string } = {}): void {
  const { content = program(version), by = key.privateKey } = given;
  const { digestOf = content } = given;
  const sha256 = createHash('sha256').update(digestOf).digest('hex');
  const manifest = JSON.stringify({
    otela_release: 1,
    version,
    built_at: '2026-01-01T00:00:00Z',
    files: [{ path: NAME, sha256 }],
  });
  served.set(NAME, content);
  served.set('manifest.json', manifest);
  served.set('manifest.sig', `${sign(null, releaseMessage(manifest), by).toString('base64url')}\n`);
}

const update = () =>
  updateProgram({
    gateway: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/gw/`),
    program: join(directory, 'otela-agent'),
    version: '0.1.0',
    env: { PATH: process.env.PATH },
    run: toolRunner({ PATH: process.env.PATH }),
    signal: AbortSignal.timeout(20_000),
  });
const installed = () => readFileSync(join(directory, 'otela-agent'), 'utf8');

it('installs the agent of a newer release, with its manifest, and does nothing the second time', async () => {
  serve('0.2.0');
  expect(await update()).toEqual({ from: '0.1.0', to: '0.2.0', changed: true });
  expect(installed()).toBe(program('0.2.0'));
  expect(readFileSync(join(directory, 'manifest.json'), 'utf8')).toBe(served.get('manifest.json'));
  served.delete(NAME);
  expect(await update()).toEqual({ from: '0.1.0', to: '0.2.0', changed: false });
  expect(readdirSync(directory).sort()).toEqual(['manifest.json', 'manifest.sig', 'otela-agent', 'release.pub']);
});

it.each([
  ['another key signed it', () => serve('0.2.0', { by: generateKeyPairSync('ed25519').privateKey }), 'not signed by'],
  ['it is older, although it is signed', () => serve('0.0.9'), 'older than 0.1.0'],
  ['the file has another digest', () => serve('0.2.0', { digestOf: 'other' }), 'digest of its release'],
  ['the program does not start', () => serve('0.2.0', { content: '#!/bin/sh\nexit 3\n' }), 'does not start'],
  ['the program is another version', () => serve('0.2.0', { content: program('0.1.5') }), 'does not start'],
  ['the gateway has no release', () => {}, 'cannot be read'],
])('changes nothing if %s', async (_, prepare, message) => {
  prepare();
  await expect(update()).rejects.toThrow(message);
  expect(installed()).toBe(program('0.1.0'));
  expect(readdirSync(directory).sort()).toEqual(['otela-agent', 'release.pub']);
});

it('refuses to update an agent whose own release is not signed', async () => {
  serve('0.2.0');
  rmSync(join(directory, 'release.pub'));
  await expect(update()).rejects.toThrow('the installed release is not signed');
});
