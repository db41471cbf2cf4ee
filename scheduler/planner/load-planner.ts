import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { errorText } from '../../shared/text/error-text.ts';
import { SchedulerError } from '../errors.ts';
import { checkPlan } from './check-plan.ts';
import { checkPlannerInput, planByMilp as milp } from './milp-planner.ts';
import type { Planner } from './types.ts';

/** Loads the planner in `file`, or the built-in one if `file` is undefined. Its input and its result are checked. */
export async function loadPlanner(file: string | undefined): Promise<Planner> {
  const planner = file === undefined ? milp : await importPlanner(file);
  return async (inventory, workload, current, context) => {
    checkPlannerInput(inventory, workload, current);
    const plan = await planner(inventory, workload, current, context);
    checkPlan(plan, inventory, workload, context.options);
    return plan;
  };
}

async function importPlanner(file: string): Promise<Planner> {
  let module: unknown;
  try {
    module = await import(pathToFileURL(resolve(file)).href);
  } catch (cause) {
    throw new SchedulerError('bad_input', `cannot load the planner ${file}: ${errorText(cause)}`, { cause });
  }
  const planner = typeof module === 'object' && module !== null && 'default' in module ? module.default : undefined;
  if (!isPlanner(planner)) throw new SchedulerError('bad_input', `${file} has no function as its default export`);
  return planner;
}

/** Checks only that the export is a function; each of its results is checked later. */
function isPlanner(value: unknown): value is Planner {
  return typeof value === 'function';
}
