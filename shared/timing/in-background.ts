import { errorText } from '../text/error-text.ts';

/** Does not wait for `work`. If it fails, that is logged and has no other effect. */
export function inBackground(what: string, work: Promise<unknown> | undefined, log: (line: string) => void): void {
  work?.catch((error: unknown) => log(`${what}: ${errorText(error)}`));
}

/**
 * Does not wait for `work`, which handles its errors itself. A rejection is a fault of this program, and reaches the
 * process as an unhandled rejection.
 */
export function neverRejects(work: Promise<unknown> | undefined): void {
  work?.catch(raise);
}

function raise(error: unknown): never {
  throw error;
}
