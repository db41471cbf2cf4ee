/** Operations on the file system of a source. One that is far away may hang for hours (NFS, Lustre), and an operation on it cannot be cut off. */

/** Of the four threads that Node has for files and for names of hosts, two stay free for this node's own disk and its gateway's name. */
const AT_ONCE = 2;

let free = AT_ONCE;
/** One for each read of a blob, and one for each file of a list. */
const waiting = new Set<() => void>();

/** Waits for its turn, and no longer for the operation than until the signal. @throws of the operation; the signal's reason */
export async function onSource<T>(operation: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  await turn(signal);
  return unless(operation().finally(passOn), signal);
}

async function turn(signal: AbortSignal): Promise<void> {
  if (free > 0) {
    free--;
    return;
  }
  const { promise, resolve } = Promise.withResolvers<void>();
  waiting.add(resolve);
  try {
    await unless(promise, signal);
  } catch (error) {
    // Its turn may have come in the same moment.
    if (!waiting.delete(resolve)) passOn();
    throw error;
  }
}

function passOn(): void {
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
