/** Files with keys and state: only their owner can read them, and a reader never sees a half-written one. */
import { randomUUID } from 'node:crypto';
import { linkSync, renameSync, rmSync, type Stats, statSync, writeFileSync } from 'node:fs';
import { readBoundedFile } from './bounded-file.ts';

const GROUP_AND_OTHERS = 0o077;
const OTHERS = 0o007;
/** Maximum size. A key file has one line, and a configuration with secrets has a few hundred. */
const READ_MAX_BYTES = 64 * 1024;
/** Characters that a key may contain. With any other, `fetch` would throw an error with the key in its message. */
const KEY = /^[\x21-\x7e]{1,512}$/;

/**
 * True if other users can read the file. A pipe, such as <(pass show token), has unusual mode bits and no other
 * readers. If our group can read a file of another owner, as with a Kubernetes secret, the owner intends that.
 */
export function canOthersRead(stat: Pick<Stats, 'mode' | 'uid' | 'isFile'>, me = process.getuid?.()): boolean {
  return stat.isFile() && (stat.mode & (stat.uid === me ? GROUP_AND_OTHERS : OTHERS)) !== 0;
}

/** @throws Error if the file cannot be read, is longer than 64 KiB, or can be read by others */
export function readPrivateFile(path: string): string {
  if (canOthersRead(statSync(path))) throw new Error(`other users can read it: chmod 600 ${path}`);
  return readBoundedFile(path, READ_MAX_BYTES);
}

/** The key in a private file of one line. @throws Error that does not contain the file's content */
export function readKeyFile(path: string): string {
  const key = readPrivateFile(path).trim();
  if (!KEY.test(key)) throw new Error('it must contain exactly one key');
  return key;
}

/** Creates or replaces the file. @throws Error; the former content is then unchanged */
export function writePrivateFile(path: string, text: string): void {
  writeWith(path, text, (unfinished) => renameSync(unfinished, path));
}

/** @throws Error with code EEXIST if the file exists, even if another process creates it at the same moment */
export function createPrivateFile(path: string, text: string): void {
  writeWith(path, text, (unfinished) => {
    // A link fails if the name exists. A rename would replace the file.
    linkSync(unfinished, path);
    rmSync(unfinished);
  });
}

/** Writes the file completely to disk before `publish` gives it its name. */
function writeWith(path: string, text: string, publish: (unfinished: string) => void): void {
  // A random name. The process id is not unique: in a container each process has the same id as an earlier one, which
  // may have left its file on a full disk.
  const unfinished = `${path}.${randomUUID()}`;
  try {
    writeFileSync(unfinished, text, { mode: 0o600, flag: 'wx', flush: true });
    publish(unfinished);
  } catch (error) {
    rmSync(unfinished, { force: true });
    throw error;
  }
}
