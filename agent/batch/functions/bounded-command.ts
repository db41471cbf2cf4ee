/** Runs a program of this node, such as pip, within limits of time and memory. */
import { LogTailBuffer } from '../../engine/log-tail-buffer.ts';
import { endGroup } from '../../engine/process-group.ts';
import { spawnSafely } from '../../host/spawn-safely.ts';
import { groupMemoryBytes } from './group-memory.ts';

const TAIL_BYTES = 16 * 1024;
const POLL_MS = 500;
const GRACE_MS = 2_000;

interface CommandOptions {
  cwd: string;
  env: Readonly<Record<string, string>>;
  limitMs: number;
  memoryBytes: number;
  signal: AbortSignal;
}

/** The end of a program. `why`: it failed; absent: it ended with exit code 0. */
interface CommandEnd {
  /** The last lines of its output. */
  lines: string[];
  why?: string;
}

/** Never rejects. No process of the program's group is left when the promise resolves. */
export async function runBounded(
  file: string,
  args: readonly string[],
  { cwd, env, limitMs, memoryBytes, signal }: CommandOptions,
): Promise<CommandEnd> {
  const tail = new LogTailBuffer(TAIL_BYTES);
  const child = spawnSafely(file, args, { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const output of [child.stdout, child.stderr]) output?.on('data', (chunk: Buffer) => tail.push(chunk));
  const { pid } = child;
  const { promise: why, resolve } = Promise.withResolvers<string | undefined>();
  const stopped = () => resolve('the agent is stopping');
  const timer = setTimeout(() => resolve(`it took more than ${limitMs / 1_000} s`), limitMs);
  const poll = setInterval(() => {
    if (pid !== undefined && groupMemoryBytes(pid) > memoryBytes) resolve('it used too much memory');
  }, POLL_MS);
  signal.addEventListener('abort', stopped);
  if (signal.aborted) stopped();
  child.once('error', (error) => resolve(error.message));
  child.once('close', (code, ended) => resolve(code === 0 ? undefined : `it ended with ${ended ?? `code ${code}`}`));
  const failure = await why;
  clearTimeout(timer);
  clearInterval(poll);
  signal.removeEventListener('abort', stopped);
  if (pid !== undefined) await endGroup(pid, GRACE_MS, Promise.resolve());
  return { lines: tail.lines(8), ...(failure === undefined ? {} : { why: failure }) };
}
