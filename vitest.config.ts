import { fileURLToPath } from 'node:url';
import { cloudflareTest, readD1Migrations } from '@cloudflare/vitest-plugin';
import { defineConfig } from 'vitest/config';

/** Tests start thousands of Node processes: without it each compiles a hundred files anew, half of the CPU time of its start. */
const COMPILE_CACHE = fileURLToPath(new URL('node_modules/.cache/node-compile', import.meta.url));

/** `wrangler dev` builds the page and the Worker before it starts. */
const HOST_TIMEOUT_MS = process.env.OTELA_TEST_HOST === 'worker' ? 240_000 : 60_000;

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
  'tunnel/attempt',
  'tunnel/control-frames',
  'tunnel/load-history',
].map((name) => `test/gateway/${name}.test.ts`);

/** One project per room that needs its own runtime or its own rights; `npm test` runs them all. */
const nodeProject = (name: string, timeoutMs: number, setupFiles: string[] = []) => ({
  test: {
    name,
    include: [`test/${name}/**/*.test.ts`],
    setupFiles,
    environment: 'node' as const,
    env: { NODE_COMPILE_CACHE: COMPILE_CACHE },
    testTimeout: timeoutMs,
    hookTimeout: timeoutMs,
    // The others start processes and listen on sockets; `npm test` runs three of them at once, and more would only measure each other.
    fileParallelism: name === 'shared' || name === 'sim',
  },
});

export default defineConfig({
  test: {
    projects: [
      nodeProject('shared', 30_000),
      nodeProject('sim', 120_000),
      nodeProject('agent', 30_000),
      nodeProject('scheduler', 30_000),
      nodeProject('factory', 60_000),
      nodeProject('e2e', 60_000),
      nodeProject('conformance', HOST_TIMEOUT_MS, ['./test/conformance/setup.ts']),
      nodeProject('docs', 300_000),
      nodeProject('browser', 60_000),
      nodeProject('chaos', 240_000),
      nodeProject('slurm', 240_000),
      nodeProject('netns', 240_000),
      {
        test: {
          name: 'gateway-node',
          include: GATEWAY_WITHOUT_RUNTIME,
          environment: 'node',
          testTimeout: 30_000,
        },
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
          name: 'gateway',
          include: ['test/gateway/**/*.test.ts'],
          exclude: GATEWAY_WITHOUT_RUNTIME,
          setupFiles: ['./test/gateway/apply-migrations.ts'],
          testTimeout: 30_000,
        },
      },
    ],
  },
});
