/** A Python for tests of functions. Functions of notebooks, closures and lambdas travel by cloudpickle. */
import { pythonWith } from './abilities.ts';
import { ROOT } from './where.ts';

const found = pythonWith(ROOT, 'cloudpickle');
export const PYTHON = found ?? 'python3';
/** Why a test that needs cloudpickle is skipped; undefined if it is not. */
export const NO_CLOUDPICKLE =
  found === undefined ? 'no Python with cloudpickle 3: set OTELA_TEST_PYTHON, or let .ci/run make .ci/venv' : undefined;
