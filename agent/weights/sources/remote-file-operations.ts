/**
 * Runs file operations on a source. A remote file system may hang for hours (NFS, Lustre), and an operation on it
 * cannot be aborted.
 */

/**
 * Maximum number of concurrent operations. Node has four threads for file operations and host names. Two of them stay
 * free for this node's disk and for resolving its gateway.
 */
const AT_ONCE = 2;

let free = AT_ONCE;
/** Operations that wait for a thread: at most one for each read of a blob, and one for each file of a list. */
const waiting = new Set<() => void>();

/**
 * Runs an operation when a thread is free. Stops waiting for the thread, or for the operation, when `signal` is
 * aborted.
 * @throws errors of the operation; the signal's reason
 */
export async function onSource<T>(operation: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  await takeThread(signal);
  return unless(operation().finally(releaseThread), signal);
}

async function takeThread(signal: AbortSignal): Promise<void> {
  if (free > 0) {
    free--;
    return;
  }
  const { promise, resolve } = Promise.withResolvers<void>();
  waiting.add(resolve);
  try {
    await unless(promise, signal);
  } catch (error) {
    // If the thread became free at the same moment, pass it on to the next operation.
    if (!waiting.delete(resolve)) releaseThread();
    throw error;
  }
}

function releaseThread(): void {
  const [next] = waiting;
  if (next === undefined) {
    free++;
    return;
  }
  waiting.delete(next);
  next();
}

function unless<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}
