/**
 * `npm run release -- --key FILE [--out DIR]`: a release that can be handed out. The files that run, a manifest with the SHA-256
 * of each, and the release key's signature over it; its gateway admits agents of releases that this key signed, and no others.
 * `npm run release -- --new-key FILE` makes a key and prints its public half.
 */

import { execFileSync } from 'node:child_process';
import { createHash, createPrivateKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { copyFile, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { MANIFEST_FILE, type Manifest, releaseMessage, SIGNATURE_FILE } from './shared/release/release.ts';

const ROOT = fileURLToPath(new URL('.', import.meta.url));
/** What is installed. `dist/worker` is for looking at, and other releases may lie in dist/. */
const RUNS = [
  'otela-agent.js',
  'otela-gateway.js',
  'otela-plan.js',
  'otela-plan-data',
  'worker-standalone',
  'dashboard',
];
const BESIDE = ['package.json', 'package-lock.json', 'LICENSE', 'README.md'];
const RAW_KEY_BYTES = 32;

const USAGE = `npm run release -- --key FILE [--out release]
npm run release -- --new-key FILE`;

function publicKey(key: KeyObject): string {
  const { x } = z.object({ x: z.string() }).parse(key.export({ format: 'jwk' }));
  if (Buffer.from(x, 'base64url').length !== RAW_KEY_BYTES) throw new Error('the release key is no Ed25519 key');
  return x;
}

async function newKey(file: string): Promise<void> {
  const { privateKey } = generateKeyPairSync('ed25519');
  const pem = privateKey.export({ format: 'pem', type: 'pkcs8' });
  await writeFile(file, pem, { mode: 0o600, flag: 'wx' });
  console.log(publicKey(privateKey));
}

async function filesBelow(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

async function release(keyFile: string, out: string): Promise<void> {
  const key = createPrivateKey(await readFile(keyFile));
  const releaseKey = publicKey(key);
  execFileSync(process.execPath, [join(ROOT, 'build.ts')], { cwd: ROOT, stdio: 'inherit' });
  await rm(out, { recursive: true, force: true });
  await mkdir(join(out, 'dist'), { recursive: true });
  for (const name of RUNS) await cp(join(ROOT, 'dist', name), join(out, 'dist', name), { recursive: true });
  for (const name of BESIDE) await copyFile(join(ROOT, name), join(out, name));
  await requireSigned(join(out, 'dist/worker-standalone/worker.json'), releaseKey);
  const { version } = z
    .object({ version: z.string() })
    .parse(JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')));
  const files = (await filesBelow(out)).sort();
  const manifest: Manifest = {
    otela_release: 1,
    version,
    built_at: new Date().toISOString(),
    files: await Promise.all(
      files.map(async (file) => ({
        path: relative(out, file),
        sha256: createHash('sha256')
          .update(await readFile(file))
          .digest('hex'),
      })),
    ),
  };
  const text = `${JSON.stringify(manifest, null, 1)}\n`;
  await writeFile(join(out, MANIFEST_FILE), text);
  await writeFile(join(out, SIGNATURE_FILE), `${sign(null, releaseMessage(text), key).toString('base64url')}\n`);
  console.log(`${out}: ${version}, ${files.length} files, signed by ${releaseKey}`);
}

/** The gateway of a release asks agents for one, unless its environment says otherwise. */
async function requireSigned(bundle: string, releaseKey: string): Promise<void> {
  const known = z.looseObject({}).parse(JSON.parse(await readFile(bundle, 'utf8')));
  await writeFile(bundle, JSON.stringify({ ...known, releaseKeys: [releaseKey] }));
}

const { values } = parseArgs({
  options: {
    key: { type: 'string' },
    'new-key': { type: 'string' },
    out: { type: 'string', default: join(ROOT, 'release') },
  },
});
if (values['new-key'] !== undefined) await newKey(values['new-key']);
else if (values.key !== undefined) await release(values.key, resolve(values.out));
else {
  console.error(USAGE);
  process.exitCode = 2;
}
