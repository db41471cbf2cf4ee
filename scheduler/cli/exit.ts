import { EXIT_DONE, EXIT_USAGE } from '../../shared/command-line/index.ts';
import type { SchedulerErrorCode } from '../errors.ts';
import type { Plan } from '../planner/types.ts';

/** Exit codes that scripts test for, beside the kit's. */
/** No feasible plan; what was printed says which constraint and what would help. */
export const EXIT_INFEASIBLE = 3;
/** The solver's time ended before its gap was reached: the best plan so far was printed. */
export const EXIT_TIME_OUT = 4;
/** EX_UNAVAILABLE: the gateway did not answer, or refused. */
export const EXIT_GATEWAY = 69;
/** EX_TEMPFAIL: another controller is at work, or a node that a start is for still drains. */
export const EXIT_BUSY = 75;
/** EX_SOFTWARE */
export const EXIT_FAILED = 70;

export function planExitCode(code: SchedulerErrorCode): number {
  switch (code) {
    case 'usage':
    case 'bad_input':
    case 'unknown_gpu':
    case 'unknown_model':
      return EXIT_USAGE;
    case 'infeasible':
      return EXIT_INFEASIBLE;
    case 'solver':
      return EXIT_TIME_OUT;
    case 'gateway':
      return EXIT_GATEWAY;
    case 'launcher':
      return EXIT_FAILED;
    case 'busy':
    case 'draining':
      return EXIT_BUSY;
  }
}

export function planExit(plan: Plan): number {
  const late = plan.report?.status === 'time-limit';
  // With more time there may be a plan that does what was asked.
  if (plan.infeasible !== undefined) return late && plan.report?.impossible === false ? EXIT_TIME_OUT : EXIT_INFEASIBLE;
  return late ? EXIT_TIME_OUT : EXIT_DONE;
}
