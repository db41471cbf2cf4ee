/** Paths of the repository and its programs. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/**
 * Tests start thousands of Node processes: without this cache each would compile a hundred files again, half of the CPU
 * time of its start.
 */
export const COMPILE_CACHE = join(ROOT, 'node_modules/.cache/node-compile');
/** The Node that runs this: 24, from the dev-dependency, not the machine's own. */
export const NODE = process.execPath;

/** Set by `npm test`, which has built dist/: a bundled program starts with a third of the CPU time of its sources. */
export const BUILT_VARIABLE = 'OTELA_TEST_BUILT';

/** A program of this clone: its file in dist/ in a run of `npm test`, otherwise its current sources. */
function programFile(built: string, source: string): string {
  return join(ROOT, process.env[BUILT_VARIABLE] === undefined ? source : `dist/${built}.js`);
}

export const AGENT_MAIN = programFile('otela-agent', 'agent/cli/main.ts');
export const GATEWAY_MAIN = programFile('otela-gateway', 'gateway/cli/main.ts');
export const PLAN_MAIN = programFile('otela-plan', 'scheduler/cli/main.ts');
export const FACTORY_MAIN = programFile('otela-factory', 'factory/cli/main.ts');
export const OTELA_MAIN = programFile('otela', 'clients/otela/main.ts');
