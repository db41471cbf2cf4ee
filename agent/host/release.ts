/** Which release this program is of: its manifest stands above the directory that the program lies in. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  AGENT_FILE,
  MANIFEST_FILE,
  MANIFEST_MAX_CHARS,
  type Release,
  SIGNATURE_FILE,
} from '../../shared/release/release.ts';

export interface OwnRelease extends Release {
  /** SHA-256 of the file that this program was started from, hex. */
  digest: string;
}

let started: Promise<OwnRelease | undefined> | undefined;

/** As it was when this program started: an installation that is replaced under it is not what runs. */
export function ownRelease(): Promise<OwnRelease | undefined> {
  started ??= releaseOf(fileURLToPath(import.meta.url));
  return started;
}

/** Undefined in a clone, and wherever no manifest lies beside the program. `program`: the file that runs. */
async function releaseOf(program: string): Promise<OwnRelease | undefined> {
  if (basename(program) !== basename(AGENT_FILE)) return undefined;
  const root = dirname(dirname(program));
  try {
    const [manifest, signature, own] = await Promise.all([
      readFile(join(root, MANIFEST_FILE), 'utf8'),
      readFile(join(root, SIGNATURE_FILE), 'utf8'),
      readFile(program),
    ]);
    if (manifest.length > MANIFEST_MAX_CHARS) return undefined;
    return { manifest, signature: signature.trim(), digest: createHash('sha256').update(own).digest('hex') };
  } catch {
    return undefined; // not installed from a release: a gateway that asks for one says so
  }
}
