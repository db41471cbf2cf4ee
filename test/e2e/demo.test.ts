/** The first steps of a new user: `npm start`, then the curl line that it prints. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { commandOf, descendants, endAll, eventually, freePort, Managed } from '../support/processes.ts';
import { NODE, ROOT } from '../support/where.ts';

afterEach(endAll);

const packageSchema = z.object({ scripts: z.record(z.string(), z.string()) });

it.each(['start', 'start:worker'])(
  'npm run %s prints a curl line that answers, shows the page, and leaves nothing behind',
  async (script) => {
    const { scripts } = packageSchema.parse(JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')));
    const [program, ...words] = scripts[script]?.split(' ') ?? [];
    expect(program).toBe('node');
    const demo = new Managed([NODE, ...words, '--port', String(await freePort())], { label: script, cwd: ROOT });
    const [, line = ''] = await demo.line(/^ {2}(curl [\s\S]*?\}')$/m, 60_000);
    const curl = new Managed(['bash', '-c', line], { label: 'the curl line' });
    expect(await curl.end(20_000)).toMatchObject({ code: 0 });
    expect(curl.output).toContain('data: [DONE]');
    expect(curl.output).toContain('"content":" stand-in"');
    expect(demo.output).toMatch(/not a language model/);
    const [, page = ''] = /dashboard +(\S+)/.exec(demo.output) ?? [];
    const shown = await fetch(page);
    expect([shown.status, await shown.text()]).toEqual([200, expect.stringContaining('<!doctype html>')]);
    const family = descendants(demo.pid);
    expect(family.length).toBeGreaterThanOrEqual(4);
    demo.signal('SIGINT');
    expect(await demo.end(15_000)).toMatchObject({ code: 0 });
    // A process that ended and waits to be reaped by process 1 has no command line.
    await eventually('nothing is left', 5_000, () => (family.every((pid) => commandOf(pid) === '') ? true : undefined));
  },
);
