/** Files with keys and state. Only their owner can read them, and a reader never gets a partly written file. */
import { randomUUID } from 'node:crypto';
import { linkSync, renameSync, rmSync, type Stats, statSync, writeFileSync } from 'node:fs';
import { readBoundedFile } from './bounded-file.ts';

const GROUP_AND_OTHERS = 0o077;
const OTHERS = 0o007;
/** Maximum size of a file. A key file has one line, and a configuration with secrets has a few hundred lines. */
const READ_MAX_BYTES = 64 * 1024;
/** A valid key. With any other character in a key, `fetch` would throw an error that contains the key. */
const KEY = /^[\x21-\x7e]{1,512}$/;

/**
 * True if other users can read the file. False for a pipe, such as <(pass show token), which has unusual mode bits and
 * no other readers. Also false for a file of another owner that only our group can read, such as a Kubernetes secret.
 */
export function canOthersRead(stat: Pick<Stats, 'mode' | 'uid' | 'isFile'>, me = process.getuid?.()): boolean {
  return stat.isFile() && (stat.mode & (stat.uid === me ? GROUP_AND_OTHERS : OTHERS)) !== 0;
}

/** @throws Error if the file cannot be read, is longer than 64 KiB, or can be read by others */
export function readPrivateFile(path: string): string {
  if (canOthersRead(statSync(path))) throw new Error(`other users can read it: chmod 600 ${path}`);
  return readBoundedFile(path, READ_MAX_BYTES);
}

/**
 * Reads the key from a private file of one line.
 *
 * @throws Error that does not contain the file's content
 */
export function readKeyFile(path: string): string {
  const key = readPrivateFile(path).trim();
  if (!KEY.test(key)) throw new Error('it must contain exactly one key');
  return key;
}

/**
 * Creates or replaces the file.
 *
 * @throws Error; the file then still has its previous content
 */
export function writePrivateFile(path: string, text: string): void {
  writeWith(path, text, (unfinished) => renameSync(unfinished, path));
}

/**
 * Creates the file.
 *
 * @throws Error with code EEXIST if the file exists, even if another process creates it at the same moment
 */
export function createPrivateFile(path: string, text: string): void {
  writeWith(path, text, (unfinished) => {
    // `link` fails if the file exists; `rename` would replace it.
    linkSync(unfinished, path);
    rmSync(unfinished);
  });
}

/** Writes the text completely to disk under a temporary name, then `publish` gives the file its name. */
function writeWith(path: string, text: string, publish: (unfinished: string) => void): void {
  // The temporary name is random. A process id is not unique: in a container each process has the same id as an earlier
  // one, which may have left its file on a full disk.
  const unfinished = `${path}.${randomUUID()}`;
  try {
    writeFileSync(unfinished, text, { mode: 0o600, flag: 'wx', flush: true });
    publish(unfinished);
  } catch (error) {
    rmSync(unfinished, { force: true });
    throw error;
  }
}
