/** Files with keys and state: only their owner can read them, and they are never half written. */
import { randomUUID } from 'node:crypto';
import { linkSync, renameSync, rmSync, type Stats, statSync, writeFileSync } from 'node:fs';
import { readBoundedFile } from './bounded-file.ts';

const GROUP_AND_OTHERS = 0o077;
const OTHERS = 0o007;
/** A key file has one line, and a configuration with secrets a few hundred. */
const READ_MAX_BYTES = 64 * 1024;
/** Characters that a header may contain. With any other, `fetch` would throw an error with the key in its message. */
const KEY = /^[\x21-\x7e]{1,512}$/;

/**
 * A pipe, such as <(pass show token), has unusual bits and no other readers. If a file of another owner can be read by
 * our group, as a Kubernetes secret can, the owner intends that.
 */
export function canOthersRead(stat: Pick<Stats, 'mode' | 'uid' | 'isFile'>, me = process.getuid?.()): boolean {
  return stat.isFile() && (stat.mode & (stat.uid === me ? GROUP_AND_OTHERS : OTHERS)) !== 0;
}

/** @throws Error if the file cannot be read, is longer than 64 KiB, or can be read by others */
export function readPrivateFile(path: string): string {
  if (canOthersRead(statSync(path))) throw new Error(`others can read it: chmod 600 ${path}`);
  return readBoundedFile(path, READ_MAX_BYTES);
}

/** The key in a private file of one line. @throws Error without the file's content */
export function readKeyFile(path: string): string {
  const key = readPrivateFile(path).trim();
  if (!KEY.test(key)) throw new Error('it does not hold one key');
  return key;
}

/** Writes or replaces the file. @throws Error; the former content is then unchanged */
export function writePrivateFile(path: string, text: string): void {
  writeWith(path, text, (unfinished) => renameSync(unfinished, path));
}

/** @throws Error with the code EEXIST if the file exists, also if another process creates it at the same moment */
export function createPrivateFile(path: string, text: string): void {
  writeWith(path, text, (unfinished) => {
    // A link fails if the name exists; a rename would replace the file.
    linkSync(unfinished, path);
    rmSync(unfinished);
  });
}

/** The file is complete and on disk before `publish` gives it its name. */
function writeWith(path: string, text: string, publish: (unfinished: string) => void): void {
  // The process id would not do: in a container each process has the same id as an earlier one, which may have left its
  // file on a full disk.
  const unfinished = `${path}.${randomUUID()}`;
  try {
    writeFileSync(unfinished, text, { mode: 0o600, flag: 'wx', flush: true });
    publish(unfinished);
  } catch (error) {
    rmSync(unfinished, { force: true });
    throw error;
  }
}
