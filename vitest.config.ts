import { cloudflareTest, readD1Migrations } from '@cloudflare/vitest-plugin';
import { defineConfig } from 'vitest/config';
import { COMPILE_CACHE } from './test/support/where.ts';

/** What runs longer hangs: the slowest test takes two minutes on a quiet machine. Where the time is the promise, a test measures it. */
const PATIENCE = { testTimeout: 600_000, hookTimeout: 600_000, expect: { poll: { timeout: 30_000 } } };

/** Of the gateway's tests those that need nothing of workerd, where each file costs five seconds of CPU before its first test. */
const GATEWAY_WITHOUT_RUNTIME = [
  'accounts/limit-sets',
  'accounts/member-limits',
  'accounts/limiter',
  'accounts/minute-window',
  'accounts/token-estimator',
  'admin/record-searches',
  'batch/usage',
  'cli/new-since',
  'cli/rollout-cohort',
  'cli/table',
  'cli/trace-figures',
  'factory/demand',
  'factory/teller',
  'issuer/crypto',
  'issuer/issuer',
  'registry/snapshot-store',
  'routing/alias',
  'routing/policies',
  'routing/request-kinds',
  'storage/health',
  'tunnel/attempt-call',
  'tunnel/calls',
  'tunnel/control-frames',
  'tunnel/load-history',
].map((name) => `test/gateway/${name}.test.ts`);

/** One project per room that needs its own runtime or its own rights; `npm test` runs them all. */
const nodeProject = (name: string, setupFiles: string[] = []) => ({
  test: {
    ...PATIENCE,
    name,
    include: [`test/${name}/**/*.test.ts`],
    setupFiles,
    environment: 'node' as const,
    env: { NODE_COMPILE_CACHE: COMPILE_CACHE },
    // The others start processes and listen on sockets; `npm test` runs three of them at once, and more would only measure each other.
    fileParallelism: name === 'shared' || name === 'sim',
  },
});

export default defineConfig({
  test: {
    projects: [
      nodeProject('shared'),
      nodeProject('sim'),
      nodeProject('agent'),
      nodeProject('scheduler'),
      nodeProject('factory'),
      nodeProject('e2e'),
      nodeProject('conformance', ['./test/conformance/setup.ts']),
      nodeProject('docs'),
      nodeProject('browser'),
      nodeProject('chaos'),
      nodeProject('slurm'),
      nodeProject('netns'),
      nodeProject('release'),
      {
        test: { ...PATIENCE, name: 'gateway-node', include: GATEWAY_WITHOUT_RUNTIME, environment: 'node' },
      },
      {
        plugins: [
          cloudflareTest(async () => ({
            wrangler: { configPath: './wrangler.toml' },
            miniflare: {
              bindings: {
                TEST_MIGRATIONS: await readD1Migrations('./migrations'),
                OTELA_METRICS_TOKEN: 'metrics-token-of-tests',
              },
            },
          })),
        ],
        test: {
          ...PATIENCE,
          name: 'gateway',
          include: ['test/gateway/**/*.test.ts'],
          exclude: GATEWAY_WITHOUT_RUNTIME,
          setupFiles: ['./test/gateway/apply-migrations.ts'],
        },
      },
    ],
  },
});
