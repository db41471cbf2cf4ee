/** `opentela.up` with the real `otela up` and OpenAI's SDK. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { pythonWith } from '../support/abilities.ts';
import { endAll, Managed } from '../support/processes.ts';
import { NO_SSHD } from '../support/ssh-host.ts';
import { NODE, OTELA_MAIN, ROOT } from '../support/where.ts';
import { Laptop, MODEL } from './laptop.ts';

afterEach(endAll);

const PYTHON = pythonWith(ROOT, 'openai');
const SCRIPT = `
import os
from opentela import up

with up("${MODEL}", "cluster", time="00:10:00") as client:
    messages = [{"role": "user", "content": "Hello"}]
    print(client.chat.completions.create(model="${MODEL}", messages=messages).choices[0].message.content)
`;

it.skipIf(NO_SSHD || PYTHON === undefined)('the job of a block in Python ends with the block', async () => {
  const laptop = await Laptop.open();
  await writeFile(join(laptop.home, 'bin/otela'), `#!/bin/sh\nexec ${NODE} ${OTELA_MAIN} "$@"\n`, { mode: 0o755 });
  const script = join(laptop.home, 'block.py');
  await writeFile(script, SCRIPT);
  const env = { ...laptop.env, PYTHONPATH: join(ROOT, 'clients/python'), PYTHONDONTWRITEBYTECODE: '1' };
  const block = new Managed([PYTHON ?? '', script], { label: 'block.py', env });
  await block.line(/This is a stand-in engine/, 120_000);
  expect(await block.end(60_000)).toMatchObject({ code: 0 });
  expect(laptop.cluster.command('squeue', '-h', '-o', '%i').trim()).toBe('');
  expect((await laptop.ran('ls')).out).toContain('No model is up');
});
