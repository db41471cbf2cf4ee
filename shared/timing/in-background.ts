import { errorText } from '../text/error-text.ts';

/** Lets `work` go on beside its caller. If it fails, that is logged and has no other effect. */
export function inBackground(what: string, work: Promise<unknown> | undefined, log: (line: string) => void): void {
  work?.catch((error: unknown) => log(`${what}: ${errorText(error)}`));
}

/**
 * Lets `work` go on beside its caller, which relies on it. It handles its errors itself, so a rejection is a fault of
 * this program: it reaches the process as an unhandled rejection.
 */
export function neverRejects(work: Promise<unknown> | undefined): void {
  work?.catch(raise);
}

function raise(error: unknown): never {
  throw error;
}
