import { defineConfig } from 'vitest/config';
import { LIMITS } from './test/support/vitest-limits.ts';
import { COMPILE_CACHE } from './test/support/where.ts';

/** Their tests start processes and listen on sockets: files side by side would only measure each other. `npm test` runs several projects at once. */
const ONE_FILE_AT_A_TIME = [
  'agent',
  'factory',
  'e2e',
  'conformance',
  'docs',
  'browser',
  'chaos',
  'slurm',
  'netns',
  'release',
];
/** Their modules hold no state that a test of another file could see: they are loaded once for all files. */
const SHARED_MODULES: readonly string[] = ['shared', 'sim', 'scheduler', 'factory', 'research'];

/** One project per room that needs its own runtime or its own rights. */
const nodeProject = (name: string) => ({
  test: {
    ...LIMITS,
    name,
    include: [`test/${name}/**/*.test.ts`],
    setupFiles: ['./test/support/cpu-time.ts', ...(name === 'conformance' ? ['./test/conformance/setup.ts'] : [])],
    environment: 'node' as const,
    env: { ...LIMITS.env, NODE_COMPILE_CACHE: COMPILE_CACHE },
    isolate: !SHARED_MODULES.includes(name),
    fileParallelism: !ONE_FILE_AT_A_TIME.includes(name),
  },
});

/** To load Cloudflare's plugin costs as much as to start vitest, so a run of other projects leaves the gateway's out. */
const asked = process.argv.slice(2);
const withGateway = !asked.includes('--project') || asked.some((word) => word.includes('gateway'));

export default defineConfig({
  test: {
    // Ours first: a failure's first line says what broke, and the second how it is run alone.
    reporters: ['./test/support/reporter.ts', 'default'],
    projects: [
      ...['shared', 'sim', 'scheduler', 'research', ...ONE_FILE_AT_A_TIME].map(nodeProject),
      ...(withGateway ? ['./vitest.gateway.config.ts'] : []),
    ],
  },
});
