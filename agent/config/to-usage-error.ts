import { UsageError } from '../../shared/command-line/index.ts';

/** Rethrows each error of `read` as a UsageError. */
export function toUsageError<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}
