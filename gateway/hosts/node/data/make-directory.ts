import { mkdir } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/**
 * Creates a directory and its missing parents, accessible only to the owner. Node's option `recursive` is not used,
 * because such a call never returns below /proc or an automounter, where a directory exists but nothing can be created
 * in it. Meanwhile the process would handle no signal.
 * @throws Error
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

/** Tries to create one directory and returns the error. Undefined: the directory exists now. */
function failureOf(path: string): Promise<NodeJS.ErrnoException | undefined> {
  return mkdir(path, { mode: 0o700 }).then(
    () => undefined,
    (error: NodeJS.ErrnoException) => (error.code === 'EEXIST' ? undefined : error),
  );
}
