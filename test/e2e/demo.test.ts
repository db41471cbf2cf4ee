/** What a newcomer does first: `npm start`, then the curl line that it prints. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { commandOf, descendants, endAll, eventually, freePort, Managed } from '../support/processes.ts';
import { NODE, ROOT } from '../support/where.ts';

afterEach(endAll);

it('prints a curl line that answers within a minute, says that there is no model, and leaves nothing behind', async () => {
  const packageJson: unknown = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
  expect(packageJson).toMatchObject({ scripts: { start: 'node test/support/demo.ts' } });
  const startedAt = Date.now();
  const demo = new Managed([NODE, join(ROOT, 'test/support/demo.ts'), '--port', String(await freePort())], {
    label: 'npm start',
  });
  const [, line = ''] = await demo.line(/^ {2}(curl [\s\S]*?\}')$/m, 50_000);
  const curl = new Managed(['bash', '-c', line], { label: 'the curl line' });
  expect(await curl.end(20_000)).toMatchObject({ code: 0 });
  expect(Date.now() - startedAt).toBeLessThan(60_000);
  expect(curl.output).toContain('data: [DONE]');
  expect(curl.output).toContain('otela-stand-in');
  expect(demo.output).toMatch(/no language model/);
  const family = descendants(demo.pid);
  expect(family.length).toBeGreaterThanOrEqual(4);
  demo.signal('SIGINT');
  expect(await demo.end(15_000)).toMatchObject({ code: 0 });
  // A process that ended and waits to be reaped by process 1 has no command line.
  await eventually('nothing is left', 5_000, () => (family.every((pid) => commandOf(pid) === '') ? true : undefined));
});
