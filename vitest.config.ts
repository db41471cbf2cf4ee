import { defineConfig } from 'vitest/config';
import { LIMITS } from './test/support/vitest-limits.ts';
import { COMPILE_CACHE } from './test/support/where.ts';

/**
 * These tests start processes and listen on sockets: files that run in parallel would only slow each other down. `npm
 * test` runs several projects concurrently.
 */
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
/** Their modules have no state that a test of another file could see, so they are loaded once for all files. */
const SHARED_MODULES: readonly string[] = ['shared', 'node', 'sim', 'scheduler', 'factory', 'research'];

/** One project per folder that needs its own runtime or its own permissions. */
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

/**
 * Loading Cloudflare's plugin takes as long as starting vitest, so a run of other projects leaves out the gateway's.
 */
const asked = process.argv.slice(2);
const withGateway = !asked.includes('--project') || asked.some((word) => word.includes('gateway'));

export default defineConfig({
  test: {
    // Our reporter is first: the first line of a failure says what broke, and the second how to run only this test.
    reporters: ['./test/support/reporter.ts', 'default'],
    projects: [
      ...['shared', 'node', 'sim', 'scheduler', 'research', 'up', ...ONE_FILE_AT_A_TIME].map(nodeProject),
      ...(withGateway ? ['./vitest.gateway.config.ts'] : []),
    ],
  },
});
