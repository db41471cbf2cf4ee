import type { FactoryErrorCode } from '../errors.ts';

export const EXIT_DONE = 0;
/** `check` found a fault, or nothing of what was asked for is known. */
export const EXIT_FOUND = 1;
/** Wrong use or configuration; nothing was done. */
export const EXIT_USAGE = 2;
/** EX_UNAVAILABLE: the gateway refused. */
export const EXIT_GATEWAY = 69;
/** EX_SOFTWARE */
export const EXIT_FAILED = 70;
/** EX_TEMPFAIL: another factory has the lease. */
const EXIT_BUSY = 75;

export function exitOf(code: FactoryErrorCode): number {
  switch (code) {
    case 'usage':
    case 'config':
      return EXIT_USAGE;
    case 'gateway':
      return EXIT_GATEWAY;
    case 'busy':
      return EXIT_BUSY;
    case 'internal':
      return EXIT_FAILED;
  }
}
