/** Where things are. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** Tests start thousands of Node processes: without it each compiles a hundred files anew, half of the CPU time of its start. */
export const COMPILE_CACHE = join(ROOT, 'node_modules/.cache/node-compile');
/** The Node that runs this: 24, from the dev-dependency, whatever the machine's own is. */
export const NODE = process.execPath;

/** Set by `npm test`, which has built dist/: a program as one file starts with a third of the CPU time that its sources need. */
export const BUILT_VARIABLE = 'OTELA_TEST_BUILT';

/** A program of this clone: its file in dist/ in a run of `npm test`; in a run of one test file its sources, as they are now. */
function programFile(built: string, source: string): string {
  return join(ROOT, process.env[BUILT_VARIABLE] === undefined ? source : `dist/${built}.js`);
}

export const AGENT_MAIN = programFile('otela-agent', 'agent/cli/main.ts');
export const GATEWAY_MAIN = programFile('otela-gateway', 'gateway/cli/main.ts');
export const PLAN_MAIN = programFile('otela-plan', 'scheduler/cli/main.ts');
export const FACTORY_MAIN = programFile('otela-factory', 'factory/cli/main.ts');
