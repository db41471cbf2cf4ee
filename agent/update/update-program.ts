/**
 * Replaces the single-file agent by the file that a gateway serves, if the key that signed the installed release also
 * signed the new one.
 */
import { createHash, createPublicKey, randomUUID } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { chmod, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import * as z from 'zod';
import {
  isOlder,
  MANIFEST_FILE,
  MANIFEST_MAX_CHARS,
  openRelease,
  PLATFORMS,
  type ReleaseManifest,
  SIGNATURE_FILE,
  singleFileName,
} from '../../shared/release/release-manifest.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { nodeCrypto } from '../host/node-crypto.ts';
import type { RunTool } from '../host/run-tool.ts';
import { httpGet, responseText } from '../weights/sources/http-get.ts';

const KEY_FILE = 'release.pub';
/** The file has 120 MB. A larger one is not the agent. */
const PROGRAM_MAX_BYTES = 512 * 1024 * 1024;

export class UpdateError extends Error {
  override readonly name = 'UpdateError';
}

interface UpdateOptions {
  gateway: URL;
  /** Path of the installed program. The files of its release are beside it. */
  program: string;
  /** Version of the installed program. */
  version: string;
  env: NodeJS.ProcessEnv;
  run: RunTool;
  signal: AbortSignal;
}

export interface UpdateResult {
  from: string;
  to: string;
  /** False if the installed file is the one of the release. */
  changed: boolean;
}

/**
 * An agent that runs continues with the old file until it starts again. @throws UpdateError; the installed program is
 * then unchanged
 */
export async function updateProgram(options: UpdateOptions): Promise<UpdateResult> {
  const { gateway, program, version, env, signal } = options;
  const directory = dirname(program);
  const key = await installedKey(directory);
  const get = (name: string) => {
    const url = new URL(gateway);
    url.pathname = `${gateway.pathname.replace(/\/+$/, '')}/install/${name}`;
    return httpGet({ url, secret: {}, env, signal }).catch((cause: unknown) => {
      throw new UpdateError(`${url.href} cannot be read: ${errorText(cause)}`, { cause });
    });
  };
  const text = async (name: string) => responseText(await get(name), MANIFEST_MAX_CHARS);
  const [manifest, signature] = [await text(MANIFEST_FILE), (await text(SIGNATURE_FILE)).trim()];
  const release = openRelease({ manifest, signature }, [key], nodeCrypto);
  if (typeof release === 'string') throw new UpdateError(`The release of ${gateway.host} is refused: ${release}.`);
  const result = { from: version, to: release.version };
  if (isOlder(release.version, version))
    throw new UpdateError(`The release of ${gateway.host} is ${release.version}, which is older than ${version}.`);
  const [name, digest] = ownFile(release);
  const isCurrent = (await digestOf(program)) === digest;
  const part = join(directory, `.otela-agent.${randomUUID()}`);
  try {
    if (!isCurrent) {
      await download(await get(name), part, digest);
      await requireStart(part, release.version, options);
    }
    await replaceText(join(directory, MANIFEST_FILE), manifest);
    await replaceText(join(directory, SIGNATURE_FILE), `${signature}\n`);
    if (!isCurrent) await rename(part, program);
  } finally {
    await rm(part, { force: true });
  }
  return { ...result, changed: !isCurrent };
}

/** @throws UpdateError if the installed release is not signed */
async function installedKey(directory: string): Promise<Uint8Array> {
  const path = join(directory, KEY_FILE);
  try {
    const jwk = createPublicKey(await readFile(path)).export({ format: 'jwk' });
    return Buffer.from(z.object({ crv: z.literal('Ed25519'), x: z.string() }).parse(jwk).x, 'base64url');
  } catch (cause) {
    const why = `There is no key in ${path}, because the installed release is not signed`;
    throw new UpdateError(`${why}: install again with \`curl -fsSL GATEWAY/install | sh\`.`, { cause });
  }
}

/** The name and digest of this platform's agent. @throws UpdateError */
function ownFile(release: ReleaseManifest): [name: string, sha256: string] {
  const platform = PLATFORMS.find((one) => one === `${process.platform}-${process.arch}`);
  const name = platform === undefined ? '' : singleFileName(platform);
  const file = release.files.find(({ path }) => path === name);
  if (file !== undefined) return [name, file.sha256];
  throw new UpdateError(`Release ${release.version} has no agent for ${process.platform}-${process.arch}.`);
}

async function download({ body }: Awaited<ReturnType<typeof httpGet>>, path: string, digest: string): Promise<void> {
  const hash = createHash('sha256');
  let bytes = 0;
  const check = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      hash.update(chunk);
      done(bytes > PROGRAM_MAX_BYTES ? new Error(`it has more than ${PROGRAM_MAX_BYTES} bytes`) : null, chunk);
    },
  });
  await pipeline(body, check, createWriteStream(path, { mode: 0o700, flags: 'wx' })).catch((cause: unknown) => {
    throw new UpdateError(`The new agent cannot be downloaded: ${errorText(cause)}`, { cause });
  });
  if (hash.digest('hex') !== digest) throw new UpdateError('The new agent does not have the digest of its release.');
  await chmod(path, 0o755);
}

/** Starts the new program, which may need a newer C library than this machine has. @throws UpdateError */
async function requireStart(path: string, version: string, { run }: UpdateOptions): Promise<void> {
  const answer = await run(path, ['version']);
  if (answer.ok && answer.stdout.includes(version)) return;
  throw new UpdateError(`The new agent does not start here: ${answer.ok ? answer.stdout.trim() : answer.reason}`);
}

async function replaceText(path: string, text: string): Promise<void> {
  const part = `${path}.${randomUUID()}`;
  await writeFile(part, text);
  await rename(part, path);
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}
