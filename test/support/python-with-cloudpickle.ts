/** A Python for tests of functions. Functions of notebooks, closures and lambdas travel by cloudpickle. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pythonWith } from './abilities.ts';
import { ROOT } from './where.ts';

const found = pythonWith(ROOT, 'cloudpickle');
export const PYTHON = found ?? 'python3';
/** Why a test that needs cloudpickle is skipped; undefined if it is not. */
export const NO_CLOUDPICKLE =
  found === undefined ? 'no Python with cloudpickle 3: set OTELA_TEST_PYTHON, or let .ci/run make .ci/venv' : undefined;
/** Why a test that needs uv, beside that Python, is skipped. */
export const NO_UV = existsSync(join(dirname(PYTHON), 'uv'))
  ? undefined
  : 'no uv beside the Python with cloudpickle: let .ci/run make .ci/venv';
