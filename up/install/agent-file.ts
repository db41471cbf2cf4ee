/** The single-file agent for a platform, and its digest. It is made once, from the pinned Node and the agent's code. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { seaBlob, singleFile } from '../../packaging/single-file.ts';
import { PLATFORMS, type Platform, singleFileName } from '../../shared/release/release-manifest.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { UpError } from '../up-error.ts';
import { PINNED_VERSION, pinnedNode } from './pinned-node.ts';
import { agentBundle, cacheDirectory } from './program-files.ts';

export interface AgentFile {
  path: string;
  /** SHA-256 in hex. */
  digest: string;
}

/**
 * @param given a single file of a release
 * @throws UpError
 */
export async function agentFile(platform: Platform, given: string | undefined): Promise<AgentFile> {
  if (given !== undefined) return hashedAgent(given);
  const path = await madeFile(platform);
  const stored = await readFile(digestFile(path), 'utf8').catch(() => '');
  if (/^[0-9a-f]{64}$/.test(stored)) return { path, digest: stored };
  const agent = await hashedAgent(path);
  await writeFile(digestFile(path), agent.digest);
  return agent;
}

/** Keeps the digest of a file that was made here: hashing 100 MB at each start would take longer than connecting. */
const digestFile = (path: string): string => `${path}.sha256`;

/** Reads the file for its digest. Call before the file is sent, because the stored digest may be that of an earlier file. @throws UpError */
export async function hashedAgent(path: string): Promise<AgentFile> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash).catch((cause: unknown) => {
    throw new UpError(`${path} cannot be read: ${errorText(cause)}`, 'Give the agent of a release with --agent FILE.', {
      cause,
    });
  });
  return { path, digest: hash.digest('hex') };
}

/** The name contains the versions of both parts, so that a new agent replaces the file. */
async function madeFile(platform: Platform): Promise<string> {
  const bundle = await agentBundle();
  const code = await readFile(bundle);
  const name = createHash('sha256').update(code).update(PINNED_VERSION).digest('hex').slice(0, 16);
  const cache = cacheDirectory();
  const path = join(cache, `${singleFileName(platform)}-${name}`);
  if ((await stat(path).catch(() => undefined)) !== undefined) return path;
  await mkdir(cache, { recursive: true });
  try {
    const made = singleFile(await pinnedNode(platform, cache), await seaBlob(bundle, await builder(cache)));
    await writeFile(`${path}.${process.pid}`, made, { mode: 0o755 });
    await rename(`${path}.${process.pid}`, path);
    return path;
  } catch (cause) {
    throw new UpError(
      `The agent for ${platform} cannot be made here: ${errorText(cause)}`,
      `Give ${singleFileName(platform)} of a release with --agent FILE.`,
      { cause },
    );
  }
}

/** A Node of the pinned version that runs on this machine: only that version writes blobs that it can read. */
async function builder(cache: string): Promise<string> {
  if (process.versions.node === PINNED_VERSION) return process.execPath;
  const own = PLATFORMS.find((one) => one === `${process.platform}-${process.arch}`);
  if (own === undefined) throw new Error(`this machine has Node ${process.versions.node}, not ${PINNED_VERSION}`);
  const path = join(cache, `node-${PINNED_VERSION}-builder`);
  await writeFile(path, await pinnedNode(own, cache), { mode: 0o755 });
  return path;
}
