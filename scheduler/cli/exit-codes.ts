import { EXIT_DONE, EXIT_SOFTWARE, EXIT_UNAVAILABLE, EXIT_USAGE } from '../../shared/command-line/index.ts';
import type { SchedulerErrorCode } from '../errors.ts';
import type { Plan } from '../planner/types.ts';

/** Exit codes of `otela-plan` that scripts test for, in addition to the common ones of our programs. */
/** No plan is feasible. The output names the constraint and a remedy. */
export const EXIT_INFEASIBLE = 3;
/** The time limit ended before the plan was within the requested gap. The output is the best plan so far. */
export const EXIT_TIME_OUT = 4;

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
      return EXIT_UNAVAILABLE;
    case 'launcher':
      return EXIT_SOFTWARE;
  }
}

export function planExit(plan: Plan): number {
  const late = plan.report?.status === 'time-limit';
  // With more time, a feasible plan may be found.
  if (plan.infeasible !== undefined) return late && plan.report?.impossible === false ? EXIT_TIME_OUT : EXIT_INFEASIBLE;
  return late ? EXIT_TIME_OUT : EXIT_DONE;
}
