/**
 * The release from which this program was installed. The manifest and the signature are in the program's directory, in
 * its parent, or in the directory of a setting.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import {
  MANIFEST_FILE,
  MANIFEST_MAX_CHARS,
  type Release,
  SIGNATURE_FILE,
} from '../../shared/release/release-manifest.ts';

export interface OwnRelease extends Release {
  /** SHA-256 of the file that this program was started from, in hex. */
  digest: string;
}

let started: Promise<OwnRelease | undefined> | undefined;

/**
 * Read once, at the first call: files that are replaced later do not belong to the running program.
 * @param directory directory of manifest and signature, if they are not with the program
 */
export function ownRelease(directory?: string): Promise<OwnRelease | undefined> {
  // The bundle's file, or the single executable.
  started ??= releaseOf(fileURLToPath(import.meta.url), directory);
  return started;
}

/** Undefined in a clone, or if there is no manifest. @param program the running file */
async function releaseOf(program: string, directory: string | undefined): Promise<OwnRelease | undefined> {
  if (program.endsWith('.ts')) return undefined;
  const beside = dirname(program);
  for (const place of directory === undefined ? [beside, dirname(beside)] : [directory]) {
    try {
      const [manifest, signature] = await Promise.all(
        [MANIFEST_FILE, SIGNATURE_FILE].map((name) => readFile(join(place, name), 'utf8')),
      );
      if (manifest === undefined || signature === undefined || manifest.length > MANIFEST_MAX_CHARS) continue;
      return { manifest, signature: signature.trim(), digest: await digestOf(program) };
    } catch {
      // The agent was not installed from a release, so a gateway that requires one will refuse this agent.
    }
  }
  return undefined;
}

/** Reads in chunks, because a single executable has 100 MiB. */
async function digestOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}
