import { UsageError } from '../../shared/command-line/index.ts';

/** Rethrows what `read` throws as a UsageError. */
export function toUsageError<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}
