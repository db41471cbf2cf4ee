/** The Python client's tests without a gateway, and the first lines of its page. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { patience } from '../../support/patience.ts';
import { temporaryDirectory } from '../../support/processes.ts';
import { NO_CLOUDPICKLE, PYTHON } from '../../support/python-with-cloudpickle.ts';
import { ROOT } from '../../support/where.ts';

const CLIENT = join(ROOT, 'clients/python');

it('the tests of the Python client pass', async ({ skip }) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  const args = ['-W', 'error::DeprecationWarning', '-m', 'unittest', 'discover', '-s', 'tests'];
  const env = { PATH: process.env.PATH ?? '', PYTHONPATH: CLIENT, PYTHONDONTWRITEBYTECODE: '1' };
  const { stderr } = await promisify(execFile)(PYTHON, args, { cwd: CLIENT, env, timeout: patience(60_000) });
  expect(stderr).toMatch(/\nOK\n$/);
});

it('the first lines of the page run as they are printed', async () => {
  const page = await readFile(join(ROOT, 'docs/functions.md'), 'utf8');
  const [, code = ''] = /```python\n(.*?)```/s.exec(page) ?? [];
  expect(code.trimEnd().split('\n').length).toBeLessThanOrEqual(15);
  const [, local = ''] = /```sh\n(OTELA_GATEWAY=local python3 check\.py) /.exec(page) ?? [];
  const cwd = await temporaryDirectory('page');
  writeFileSync(join(cwd, 'check.py'), code);
  const env = { PATH: process.env.PATH ?? '', PYTHONPATH: CLIENT };
  const command = local.replace('python3', PYTHON);
  const { stdout } = await promisify(execFile)('sh', ['-c', command], { cwd, env, timeout: patience(60_000) });
  expect(stdout).toBe('True\nFalse\n');
});
