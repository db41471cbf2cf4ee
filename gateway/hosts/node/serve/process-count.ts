import { availableParallelism } from 'node:os';
import { UsageError } from '../../../../shared/command-line/index.ts';

const PROCESSES_MAX = 64;
/** Set in the environment of processes that share a port. */
export const REUSE_PORT = 'OTELA_REUSE_PORT';

/** @throws UsageError unless the text is `auto` or a number from 1 to PROCESSES_MAX */
export function processCount(text: string): number {
  const count = text === 'auto' ? Math.min(availableParallelism(), PROCESSES_MAX) : Number(text);
  if (!Number.isInteger(count) || count < 1 || count > PROCESSES_MAX)
    throw new UsageError(`--processes ${text} is not a number from 1 to ${PROCESSES_MAX}, nor "auto"`);
  return count;
}
