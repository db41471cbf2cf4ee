import { errorText } from '../../shared/text/error-text.ts';

/**
 * Closes the parts in order. A part that fails, for example because a file cannot be removed, does not keep the others
 * open. Never rejects.
 */
export async function closeAll(log: (line: string) => void, parts: readonly (() => unknown)[]): Promise<void> {
  for (const close of parts) {
    try {
      await close();
    } catch (error) {
      log(`while shutting down: ${errorText(error)}`);
    }
  }
}
