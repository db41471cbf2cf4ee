import { mkdir } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/**
 * With what is missing above it, for its owner alone. Not by Node's `recursive`: below /proc or an automounter, where a directory is there
 * and nothing can be made in it, that never ends, and the process hears no signal either. @throws Error
 */
export async function makeDirectory(path: string): Promise<void> {
  const error = await failureOf(path);
  if (error === undefined) return;
  const above = dirname(resolve(path));
  if (error.code !== 'ENOENT' || above === resolve(path)) throw error;
  await makeDirectory(above);
  const again = await failureOf(path);
  if (again !== undefined) throw again;
}

/** Undefined: it is there. */
function failureOf(path: string): Promise<NodeJS.ErrnoException | undefined> {
  return mkdir(path, { mode: 0o700 }).then(
    () => undefined,
    (error: NodeJS.ErrnoException) => (error.code === 'EEXIST' ? undefined : error),
  );
}
