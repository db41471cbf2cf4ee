/** The first steps of a new user: `npm start`, then the curl line that it prints. */
import { afterEach, expect, it } from 'vitest';
import { commandOf, descendants } from '../support/process-table.ts';
import { endAll, eventually, freePort, Managed } from '../support/processes.ts';
import { ROOT } from '../support/where.ts';

afterEach(endAll);

/** The output of the printed line that runs a Python function. */
async function printedFunction(demo: Managed): Promise<string> {
  const [, line = ''] = /^ {2}(OTELA_GATEWAY=.*\\\n.*)$/m.exec(demo.output) ?? [];
  const python = new Managed(['bash', '-c', line], { label: 'the line with Python', cwd: ROOT });
  expect(await python.end(30_000)).toMatchObject({ code: 0 });
  return python.output;
}

// npm signals its shell, which ends and does not pass the signal on, unless the script begins with `exec`.
it.each([
  ['start', 'SIGTERM'],
  ['start:worker', 'SIGINT'],
] as const)(
  'npm run %s prints a curl line that answers, shows the page, and leaves nothing behind after %s',
  async (script, signal) => {
    const command = ['npm', 'run', '--silent', script, '--', '--port', String(await freePort())];
    const demo = new Managed(command, { label: script, cwd: ROOT });
    const [, line = ''] = await demo.line(/^ {2}(curl [\s\S]*?\}')$/m, 60_000);
    const curl = new Managed(['bash', '-c', line], { label: 'the curl line' });
    expect(await curl.end(20_000)).toMatchObject({ code: 0 });
    expect(curl.output).toContain('data: [DONE]');
    expect(curl.output).toContain('"content":" stand-in"');
    expect(demo.output).toMatch(/not a language model/);
    if (script === 'start') expect(await printedFunction(demo)).toBe("['SUPPORTED', 'REFUTED']\n");
    const [, page = ''] = /dashboard +(\S+)/.exec(demo.output) ?? [];
    const shown = await fetch(page);
    expect([shown.status, await shown.text()]).toEqual([200, expect.stringContaining('<!doctype html>')]);
    const family = descendants(demo.pid);
    expect(family.length).toBeGreaterThanOrEqual(4);
    demo.signal(signal);
    expect(await demo.end(15_000)).toMatchObject({ code: 0 });
    // A process that ended and waits to be reaped by process 1 has no command line.
    await eventually('nothing is left', 5_000, () => (family.every((pid) => commandOf(pid) === '') ? true : undefined));
  },
);
