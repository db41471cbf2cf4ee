import { errorText } from '../text/error-text.ts';

/** Starts `work` without waiting for it. A failure is logged and has no other effect. */
export function inBackground(what: string, work: Promise<unknown> | undefined, log: (line: string) => void): void {
  work?.catch((error: unknown) => log(`${what}: ${errorText(error)}`));
}

/**
 * Starts `work` without waiting for it. `work` handles its own errors, so a rejection is a bug of this program and
 * becomes an unhandled rejection.
 */
export function neverRejects(work: Promise<unknown> | undefined): void {
  work?.catch(raise);
}

function raise(error: unknown): never {
  throw error;
}
