/**
 * The temporary directory of a backup. It contains all keys of the gateway, so it is removed however the backup ends.
 */
import { rmSync } from 'node:fs';
import { access, lstat, mkdtemp, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CommandError } from '../../../command-error.ts';
import { lockDirectory } from '../data/data-directory.ts';

const PREFIX = '.otela-backup-';
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** How often the removal is tried, because a copy that is being written may create a file during it. */
const REMOVE_TRIES = 5;

/**
 * Creates a directory beside the backup's destination, so that the result can be renamed, and removes it after `use` or
 * when a signal ends the process. Also removes and reports what `kill -9` or a crash of the machine left there.
 * @throws CommandError
 */
export async function withStaging<T>(
  beside: string,
  log: (line: string) => void,
  use: (staging: string) => Promise<T>,
): Promise<T> {
  const staging = await mkdtemp(join(beside, PREFIX)).catch((cause: unknown) => {
    throw new CommandError(`cannot write to ${beside}`, { cause });
  });
  const gone = (signal: NodeJS.Signals) => {
    rmSync(staging, { recursive: true, force: true, maxRetries: REMOVE_TRIES });
    // Without these listeners, the signal ends this process.
    for (const one of SIGNALS) process.off(one, gone);
    process.kill(process.pid, signal);
  };
  for (const signal of SIGNALS) process.on(signal, gone);
  let release: (() => void) | undefined;
  try {
    release = lockDirectory(staging);
    for (const left of await leftBeside(beside)) {
      await rm(left, { recursive: true, force: true });
      log(`removed ${left}, left by a backup that was killed`);
    }
    return await use(staging);
  } finally {
    await rm(staging, { recursive: true, force: true });
    release?.();
    for (const signal of SIGNALS) process.off(signal, gone);
  }
}

/**
 * Returns this user's temporary directories whose lock no process holds. A directory without a lock file is still
 * empty.
 */
async function leftBeside(beside: string): Promise<string[]> {
  const left: string[] = [];
  for (const name of (await readdir(beside)).filter((one) => one.startsWith(PREFIX))) {
    const directory = join(beside, name);
    const own = await lstat(directory).then(
      (found) => found.isDirectory() && found.uid === process.getuid?.(),
      () => false,
    );
    if (own && (await exists(join(directory, 'lock'))) && isFree(directory)) left.push(directory);
  }
  return left;
}

function isFree(directory: string): boolean {
  try {
    lockDirectory(directory)();
    return true;
  } catch {
    return false;
  }
}

export function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
