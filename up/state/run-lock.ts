/**
 * A lock that ends with its process: a Unix socket. Through it, `otela down` also asks the process that holds it to
 * end.
 */
import { rmSync, statSync } from 'node:fs';
import { connect, createServer } from 'node:net';

/** Time in which a live process answers. */
const ANSWER_MS = 2_000;

export interface RunLock {
  release(): void;
}

/**
 * Takes the lock. Returns undefined if another process has it.
 * @param onEnd called if another process asks this one to end
 */
export async function takeRunLock(path: string, onEnd: () => void): Promise<RunLock | undefined> {
  const before = identity(path);
  if (await ask(path, '')) return undefined;
  // Another process may have taken the lock since it was asked for.
  if (identity(path) !== before) return undefined;
  rmSync(path, { force: true }); // a process that was killed left it
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.setTimeout(ANSWER_MS, () => socket.destroy());
    socket.on('data', (bytes) => {
      if (bytes.toString('latin1').startsWith('end')) onEnd();
      socket.end();
    });
  });
  server.maxConnections = 8;
  const error = await new Promise<NodeJS.ErrnoException | undefined>((resolve) =>
    server.once('error', resolve).listen(path, () => resolve(undefined)),
  );
  if (error?.code === 'EADDRINUSE') return undefined;
  if (error !== undefined) throw error;
  server.unref();
  return { release: () => void server.close() };
}

/** Distinguishes a file from a later one of the same name. The number of an inode is used again. */
function identity(path: string): string {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  return found === undefined ? '' : `${found.ino} ${found.ctimeNs}`;
}

/** Asks the process that holds the lock to end. Resolves with false if there is none. */
export async function endLockHolder(path: string): Promise<boolean> {
  if (!(await ask(path, 'end'))) return false;
  for (const until = performance.now() + 10_000; performance.now() < until && (await ask(path, '')); )
    await new Promise((resolve) => setTimeout(resolve, 100));
  return true;
}

export const isLocked = (path: string): Promise<boolean> => ask(path, '');

/** True if a process accepts the connection. */
function ask(path: string, message: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.setTimeout(ANSWER_MS, () => socket.destroy());
    socket.once('connect', () => {
      if (message === '') {
        socket.destroy();
        resolve(true);
      } else socket.end(message, () => resolve(true));
    });
    socket.once('error', () => resolve(false));
    socket.resume();
  });
}
