/** Directories of functions' processes: in the temporary directory, 0700, with the agent's process number in their name. */
import { lstatSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isAlive } from '../../host/is-alive.ts';

const NAME = /^otela-function-(\d{1,10})-/;
/** Looked at when an agent starts; more are left for the next one. */
const STALE_MAX = 1_000;

/** @throws Error where it cannot be made */
export function makeFunctionDirectory(temporary: string): string {
  return mkdtempSync(join(temporary, `otela-function-${process.pid}-`));
}

/** Removes what agents of this user left that were killed on this host. */
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
 * A function may leave what cannot be removed: a directory without rights, an open file on NFS, a process that writes on. Returns why
 * something stays; the next agent that starts here tries again.
 */
export function removeFunctionDirectory(path: string): string | undefined {
  try {
    rmSync(path, { recursive: true, force: true });
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
