import { EXIT_UNAVAILABLE, EXIT_USAGE } from '../../shared/command-line/index.ts';
import type { FactoryErrorCode } from '../factory-error.ts';

/** Exit code of `check` if it found a problem. */
export const EXIT_FOUND = 1;
/** EX_TEMPFAIL of sysexits.h: another factory holds the lease. */
export const EXIT_BUSY = 75;

export function factoryExitCode(code: FactoryErrorCode): number {
  switch (code) {
    case 'config':
      return EXIT_USAGE;
    case 'gateway':
      return EXIT_UNAVAILABLE;
    case 'busy':
      return EXIT_BUSY;
  }
}
