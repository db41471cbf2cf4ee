import { createExecutionContext } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import type { Env } from '../../gateway/env.ts';
import { installRoutes, type ReleaseFiles } from '../../gateway/install/install-routes.ts';

test.each([
  ['/rnode/host-1/8080', "gateway='https://gateway.test/rnode/host-1/8080'"],
  ['/~ada/otela/', "gateway='https://gateway.test/~ada/otela'"],
  ["/';reboot;'", "gateway='https://gateway.test'"],
])('below the path %s the installer downloads from this path', async (prefix, line) => {
  const release: ReleaseFiles = {
    describe: async (name) => (name.endsWith('x64') ? { bytes: 1, sha256: 'a'.repeat(64) } : undefined),
    open: () => new ReadableStream(),
  };
  const request = new Request('https://gateway.test/install', { headers: { 'x-forwarded-prefix': prefix } });
  const bindings = { ...env, RELEASE: release } as unknown as Env;
  const script = await (await installRoutes.fetch(request, bindings, createExecutionContext())).text();
  expect(script).toContain(line);
});
