/** docs/quickstart-laptop.md, as it is written. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { follow } from '../docs/reader.ts';
import { endAll } from '../support/processes.ts';
import { NO_SSHD } from '../support/ssh-host.ts';
import { NODE, OTELA_MAIN } from '../support/where.ts';
import { Laptop, MODEL } from './laptop.ts';

afterEach(endAll);

it.skipIf(NO_SSHD)('docs/quickstart-laptop.md, every command of it', async () => {
  const laptop = await Laptop.open();
  await writeFile(join(laptop.home, 'bin/otela'), `#!/bin/sh\nexec ${NODE} ${OTELA_MAIN} "$@"\n`, { mode: 0o755 });
  const read = await follow('docs/quickstart-laptop.md', {
    cwd: laptop.home,
    env: laptop.env,
    yours: { LOGIN: 'cluster', MODEL },
    has: [],
  });
  expect(read.skipped).toEqual([]);
  expect(await read.terminals[0]?.end(30_000)).toMatchObject({ code: 0 });
});
