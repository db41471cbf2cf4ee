import { mkdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { build } from 'esbuild';
import { afterAll, expect, test } from 'vitest';
import * as z from 'zod';
import { endAll, eventually, freePort, Managed, temporaryDirectory } from '../../support/processes.ts';
import { ROOT } from '../../support/where.ts';

const AT_ONCE = 64;
/** As many, or as many as a slow machine gets through in that time, but not fewer than what is wrong showed within. */
const REQUESTS = 15_000;
const REQUESTS_MIN = 5_000;
const ENOUGH_MS = 30_000;
/** What runs for hours is optimized some time; this has V8 do it as soon as it can. */
const OPTIMIZING = [
  '--no-lazy-feedback-allocation',
  '--invocation-count-for-turbofan=1',
  '--minimum-invocations-before-optimization=1',
];

afterAll(endAll);

function config(directory: string, port: number): string {
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .main), (name = "disk", disk = (path = "${directory}/disk", writable = true))],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
  v8Flags = [${OPTIMIZING.map((flag) => `"${flag}"`).join(', ')}],
);
const main :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = "2026-11-02",
  durableObjectNamespaces = [(className = "Answering", uniqueKey = "answering", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [(name = "ANSWERING", durableObjectNamespace = "Answering")],
);
`;
}

test('letters are answered in the context that waits for them, also once the code is optimized', async () => {
  const directory = await temporaryDirectory();
  await build({
    entryPoints: [join(ROOT, 'test/gateway/tunnel/mailbox-worker.ts')],
    outfile: join(directory, 'worker.js'),
    bundle: true,
    format: 'esm',
    conditions: ['workerd'],
    external: ['cloudflare:*'],
  });
  await mkdir(join(directory, 'disk'));
  const port = await freePort();
  await writeFile(join(directory, 'config.capnp'), config(directory, port));
  const { default: binary } = z.object({ default: z.string() }).parse(createRequire(import.meta.url)('workerd'));
  const workerd = new Managed([binary, 'serve', join(directory, 'config.capnp')], { label: 'workerd' });
  const ask = async (path: string, body: string) => {
    const signal = AbortSignal.timeout(10_000); // what went on in the wrong context may never come back
    return (await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', body, signal })).text();
  };
  await eventually('an open box', 10_000, () => ask('/open', ''));
  let asked = 0;
  const enoughAt = performance.now() + ENOUGH_MS;
  const askOn = async () => {
    while (asked < REQUESTS && performance.now() < enoughAt) {
      const body = `letter ${++asked}`;
      expect(await ask('/', body), workerd.tail).toBe(body);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, askOn));
  expect(asked).toBeGreaterThanOrEqual(REQUESTS_MIN);
});
