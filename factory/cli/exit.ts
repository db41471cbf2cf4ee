import { EXIT_USAGE } from '../../shared/command-line/index.ts';
import type { FactoryErrorCode } from '../errors.ts';

/** `check` found a problem. */
export const EXIT_FOUND = 1;
/** EX_UNAVAILABLE: the gateway refused. */
export const EXIT_GATEWAY = 69;
/** EX_SOFTWARE */
export const EXIT_FAILED = 70;
/** EX_TEMPFAIL: another factory holds the lease. */
export const EXIT_BUSY = 75;

export function factoryExitCode(code: FactoryErrorCode): number {
  switch (code) {
    case 'config':
      return EXIT_USAGE;
    case 'gateway':
      return EXIT_GATEWAY;
    case 'busy':
      return EXIT_BUSY;
  }
}
