import { availableParallelism } from 'node:os';
import { UsageError } from '../../../../shared/command-line/index.ts';

const PROCESSES_MAX = 64;
/** Set in the environment of processes that share a port: a random name of the port. */
export const REUSE_PORT = 'OTELA_REUSE_PORT';

/** @throws UsageError unless the text is `auto` or a number from 1 to PROCESSES_MAX */
export function processCount(text: string): number {
  const count = text === 'auto' ? Math.min(availableParallelism(), PROCESSES_MAX) : Number(text);
  if (!Number.isInteger(count) || count < 1 || count > PROCESSES_MAX)
    throw new UsageError(`--processes ${text} is not a number from 1 to ${PROCESSES_MAX}, nor "auto"`);
  return count;
}

/** Variables that `serve --processes` sets for its processes. */
export const SHARED_DIRECTORY = 'OTELA_SHARED_DIRECTORY';
export const PROCESS_NUMBER = 'OTELA_PROCESS_NUMBER';
/** Directory of the processes in the shared one. */
export const PROCESSES_DIRECTORY = 'processes';

export interface DirectoryProcess {
  /** The data directory that the processes share. */
  shared: string;
  number: number;
}

/** Undefined: `serve --processes` has not started this process. */
export function directoryProcess(env: NodeJS.ProcessEnv): DirectoryProcess | undefined {
  const [shared, number] = [env[SHARED_DIRECTORY], Number(env[PROCESS_NUMBER])];
  return shared === undefined || !Number.isSafeInteger(number) ? undefined : { shared, number };
}
