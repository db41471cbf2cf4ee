/**
 * The gateway's own tests, inside Cloudflare's runtime. Separate from vitest.config.ts, which loads it only if it is
 * requested.
 */
import { cloudflareTest, readD1Migrations } from '@cloudflare/vitest-plugin';
import { defineConfig } from 'vitest/config';
import { LIMITS } from './test/support/vitest-limits.ts';

export default defineConfig({
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
    ...LIMITS,
    name: 'gateway',
    include: ['test/gateway/**/*.test.ts'],
    setupFiles: ['./test/gateway/empty-storage.ts'],
    // One runtime for all files: a start costs five seconds of CPU time.
    isolate: false,
    fileParallelism: false,
  },
});
