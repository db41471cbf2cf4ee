/** Functions that the Python client packed, in the process that an agent starts for them. */
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { FunctionProcess } from '../../../agent/batch/functions/function-process.ts';
import { patience } from '../../support/patience.ts';
import { temporaryDirectory } from '../../support/processes.ts';
import { NO_CLOUDPICKLE, PYTHON } from '../../support/python-with-cloudpickle.ts';
import { ROOT } from '../../support/where.ts';

const CLIENT = join(ROOT, 'clients/python');
const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

/** Runs Python with the client. */
const python = async (args: readonly string[], cwd = CLIENT, env: Readonly<Record<string, string>> = {}) =>
  promisify(execFile)(PYTHON, [...args], {
    cwd,
    env: { PATH: process.env.PATH ?? '', PYTHONPATH: CLIENT, PYTHONDONTWRITEBYTECODE: '1', ...env },
    timeout: patience(60_000),
  });

/** Packs `main.f` with the files of a directory, as a script that runs there would. */
async function packed(files: Readonly<Record<string, string>>, ask = 'from main import f'): Promise<string> {
  const directory = await temporaryDirectory('packed');
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(directory, name, '..'), { recursive: true });
    writeFileSync(join(directory, name), text);
  }
  const pack = `import sys; sys.path.insert(0, ${JSON.stringify(directory)})\n${ask}\nfrom opentela import _bundle, _function\nprint(_bundle.pack(_function.as_function(f)).text)`;
  const env = { OTELA_GATEWAY: 'http://127.0.0.1:9', OTELA_API_KEY: 'sk' };
  return (await python(['-c', pack], directory, env)).stdout.trim();
}

async function started(code: string) {
  const limits = { python: 'python3', loadMs: 20_000, callMs: 20_000, memoryBytes: 2 ** 31 };
  const temporary = await temporaryDirectory('function');
  const env = { PATH: process.env.PATH };
  const made = new FunctionProcess({ limits, env, temporary, code, name: undefined, log: () => {} });
  ends.push(() => made.stop());
  return { made, loaded: await made.load() };
}

const args = (...values: unknown[]) => JSON.stringify({ args: values, kwargs: {} });

describe('a function that the Python client packed', () => {
  it('prints for its owner: the end of each call’s output, without what could control a terminal', async () => {
    const { made, loaded } = await started(
      await packed({
        'main.py': 'def f(x):\n    print("\\x1b[2Jsaw\\n" + ("a" * 50 + "\\n") * x, flush=True)\n    return x\n',
      }),
    );
    expect(loaded).toBeUndefined();
    await made.call([args(1)]);
    await expect.poll(() => made.takeOutput()).toMatch(/saw\na{50}$/);
    await made.call([args(2_000)]);
    let said = '';
    await expect
      .poll(() => {
        said = made.takeOutput();
        return said;
      })
      .toMatch(/a{50}$/);
    expect(said.length).toBeLessThanOrEqual(4_096);
    expect(said).not.toContain('\x1b');
    expect(made.takeOutput()).toBe('');
  });

  it('begins each call in an empty directory, also if a call left files, went elsewhere or removed it', async () => {
    const { made, loaded } = await started(
      await packed({
        'main.py':
          'import os, shutil\ndef f(x):\n    seen = os.listdir()\n    os.makedirs("d/e")\n    os.symlink("/", "s")\n    open("d/file", "w").close()\n    os.chdir("/") if x == 2 else None\n    shutil.rmtree(os.getcwd()) if x == 3 else None\n    return seen\n',
      }),
    );
    expect(loaded).toBeUndefined();
    const answer = await made.call([1, 2, 3, 4].map((x) => args(x)));
    expect(answer).toMatchObject({ kind: 'outputs', outputs: ['[]', '[]', '[]', '[]'] });
  });

  it('runs with the modules beside its file and its package, and the arguments of load()', async () => {
    const { made, loaded } = await started(
      await packed(
        {
          'beside.py': 'ADD = 100\n',
          'whole/__init__.py': '',
          'whole/part.py':
            'import opentela, beside\nfrom .deep import K\ndef load(n=1):\n    return n\n@opentela.function(load=load, context={"n": 7})\ndef f(n, x, y=0):\n    return [n * x + y, K, beside.ADD]\n',
          'whole/deep.py': 'K = {"a": 1}\n',
        },
        'from whole.part import f',
      ),
    );
    expect(loaded).toBeUndefined();
    const answer = await made.call([args(2), JSON.stringify({ args: [1], kwargs: { y: 5 } })]);
    expect(answer).toMatchObject({ kind: 'outputs', outputs: ['[14, {"a": 1}, 100]', '[12, {"a": 1}, 100]'] });
  });

  it('that a notebook or a closure made travels with what it refers to', async ({ skip }) => {
    skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
    const ask =
      'import math\nbase = 40\ndef helper(x):\n    return math.floor(x) + base\nf = lambda x: (helper(x), {x})';
    const { made, loaded } = await started(await packed({}, ask));
    expect(loaded).toBeUndefined();
    const answer = await made.call([args(2.5)]);
    expect(answer).toMatchObject({ kind: 'outputs', outputs: [expect.stringContaining('$pickle')] });
  });

  it('fails the lines that raise, and runs no other line a second time', async () => {
    const { made } = await started(
      await packed({
        'main.py':
          'import opentela\nran = []\n@opentela.function\nasync def f(x):\n    ran.append(x)\n    return [10 // x, len(ran)]\n',
      }),
    );
    expect(await made.call([args(5), args(0), args(2)])).toEqual({
      kind: 'outputs',
      outputs: ['[2, 1]', 'null', '[5, 3]'],
      failed: new Map([[1, expect.stringMatching(/^ZeroDivisionError: .* \(line 6 of main.py, in f\)$/)]]),
    });
  });

  it('whose packages are missing fails before its first line, and names them as pip does', async () => {
    const code = await packed({
      'main.py':
        'import opentela\ntry:\n    import no_such_extra\nexcept ImportError:\n    pass\n@opentela.function\ndef f(x):\n    import no_such_package, sklearn_missing\n    return x\n',
    });
    const { loaded } = await started(code);
    expect(loaded).toContain("this node's Python has no package no_such_package, sklearn_missing");
    expect(loaded).toContain("requirements=['no_such_package', 'sklearn_missing']");
    expect(loaded).not.toContain('no_such_extra');
  });

  it('of another Python says which one it needs', async ({ skip }) => {
    skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
    const code = await packed({}, 'f = lambda x: x');
    const { loaded } = await started(code.replace(/"pickled_by":\[3,\d+\]/, '"pickled_by":[3,99]'));
    expect(loaded).toContain('declare python="3.99", or move the function to the top level of a .py file');
  });

  it('cannot start runs on a node, and a client at the top of its file does not disturb', async () => {
    const { made, loaded } = await started(
      await packed({
        'main.py':
          'import opentela\nclient = opentela.Client()\n@opentela.function\ndef f(x):\n    return client.submit(f, x).result()\n',
      }),
    );
    expect(loaded).toBeUndefined();
    const answer = await made.call([args(1)]);
    expect(answer.kind === 'outputs' && answer.failed.get(0)).toContain('cannot start runs on a node');
  });

  it.each([
    ['is cut off', (text: string) => text.slice(0, -10), 'SyntaxError'],
    ['has a library that is garbage', (text: string) => text.replace(/"library":"[^"]{40}/, '"library":"'), 'rror'],
  ])('whose bundle %s is refused', async (_, change, said) => {
    const code = change(await packed({ 'main.py': 'import opentela\n@opentela.function\ndef f(x):\n    return x\n' }));
    expect((await started(code)).loaded).toContain(said);
  });
});
