import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';

/** Rethrows each error of `read` as a UsageError. */
export function toUsageError<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new UsageError(errorText(error));
  }
}
