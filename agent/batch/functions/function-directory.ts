/**
 * Directories of functions' processes. They are in the temporary directory, have mode 0700, and contain the agent's
 * process id in their name.
 */
import { lstatSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { errorText } from '../../../shared/text/error-text.ts';
import { isAlive } from '../../host/is-process-alive.ts';

const NAME = /^otela-function-(\d{1,10})-/;
/** Maximum number of directories that one agent checks at its start. The next agent that starts checks the others. */
const STALE_MAX = 1_000;

/** @throws Error if it cannot be created */
export function makeFunctionDirectory(temporary: string): string {
  return mkdtempSync(join(temporary, `otela-function-${process.pid}-`));
}

/** Removes directories of this user's agents that were killed on this host. */
export function removeStaleDirectories(temporary: string): void {
  let names: string[];
  try {
    names = readdirSync(temporary).filter((name) => NAME.test(name));
  } catch {
    return;
  }
  for (const name of names.slice(0, STALE_MAX)) {
    const path = join(temporary, name);
    const stat = lstatSync(path, { throwIfNoEntry: false });
    if (!stat?.isDirectory() || stat.uid !== process.getuid?.() || isAlive(Number(NAME.exec(name)?.[1]))) continue;
    removeFunctionDirectory(path);
  }
}

/**
 * Returns why something remains, or undefined. A function may leave files that cannot be removed: a directory without
 * permissions, an open file on NFS, a process that continues to write. The next agent that starts here tries again.
 */
export function removeFunctionDirectory(path: string): string | undefined {
  try {
    rmSync(path, { recursive: true, force: true });
    return undefined;
  } catch (error) {
    return errorText(error);
  }
}
