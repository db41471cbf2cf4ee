import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { build } from 'esbuild';
import { afterAll, expect, test } from 'vitest';
import { D1_EXPECTED } from '../../gateway/accounts/d1-expected.ts';
import { endAll, Managed, temporaryDirectory } from '../../support/processes.ts';
import { NODE, ROOT } from '../../support/where.ts';

afterAll(endAll);

test('D1 on plain workerd behaves as Cloudflare promises, and its rows outlive a kill -9', async () => {
  const directory = await temporaryDirectory();
  const worker = join(directory, 'worker.js');
  const { outputFiles } = await build({
    entryPoints: [join(ROOT, 'test/gateway/accounts/d1-worker.ts')],
    bundle: true,
    format: 'esm',
    write: false,
    conditions: ['workerd'],
    external: ['cloudflare:*'],
  });
  await writeFile(worker, outputFiles[0]?.text ?? '');
  const start = async () => {
    const door = new Managed([NODE, join(ROOT, 'test/e2e/standalone/door.ts'), worker, join(directory, 'data')]);
    const [, port] = await door.line(/door (\d+)/, 20_000);
    return { door, url: `http://127.0.0.1:${port}` };
  };
  const first = await start();
  expect(await (await fetch(`${first.url}/contract`)).json()).toEqual(D1_EXPECTED);
  first.door.signal('SIGKILL', 'group');
  await first.door.end(5_000);
  const second = await start();
  expect(await (await fetch(`${second.url}/rows`)).json()).toEqual({ rows: D1_EXPECTED.afterRollback });
});
