/** Packages that functions declare, installed by a real pip from a directory of wheels. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { FunctionPackages } from '../../../agent/batch/functions/function-packages.ts';
import { FunctionStarter } from '../../../agent/batch/functions/function-starter.ts';
import { findInterpreter } from '../../../agent/batch/functions/python-interpreter.ts';
import { toolRunner } from '../../../agent/host/run-tool.ts';
import { promise } from '../../support/patience.ts';
import { temporaryDirectory } from '../../support/processes.ts';
import { NO_UV, PYTHON } from '../../support/python-with-cloudpickle.ts';

/** Writes a wheel `otela_probe` 1.0, and a source package `otela_hostile` that leaves a file if its code runs. */
const MAKE = `
import io, os, sys, tarfile, zipfile
folder = sys.argv[1]
with zipfile.ZipFile(os.path.join(folder, "otela_probe-1.0-py3-none-any.whl"), "w") as wheel:
    wheel.writestr("otela_probe.py", "answer = 42\\n")
    info = "otela_probe-1.0.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: otela-probe\\nVersion: 1.0\\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(info + "RECORD", "")
with tarfile.open(os.path.join(folder, "otela_hostile-1.0.tar.gz"), "w:gz") as source:
    for name, text in {"setup.py": f"open({folder + '/ran'!r}, 'w').close()\\n", "PKG-INFO": "Name: otela-hostile\\nVersion: 1.0\\n"}.items():
        member = tarfile.TarInfo("otela_hostile-1.0/" + name)
        member.size = len(text)
        source.addfile(member, io.BytesIO(text.encode()))
`;

/** @param more directories of programs, before those of PATH @param knowsWheels true if uv finds the wheels, as pip does */
async function node(more = '', knowsWheels = true) {
  const [wheels = '', directory = ''] = await Promise.all([
    temporaryDirectory('wheels'),
    temporaryDirectory('packages'),
  ]);
  execFileSync('python3', ['-c', MAKE, wheels]);
  const links = { PIP_NO_INDEX: '1', PIP_FIND_LINKS: wheels };
  const uv = join(wheels, 'uv.toml');
  writeFileSync(uv, `no-index = true\n${knowsWheels ? `find-links = [${JSON.stringify(wheels)}]\n` : ''}`);
  const env = { PATH: `${more}${process.env.PATH}`, HOME: wheels, UV_CONFIG_FILE: uv, ...links };
  const run = toolRunner(env);
  const lines: string[] = [];
  const log = (line: string) => void lines.push(line);
  const limits = { installMs: promise(60_000), memoryBytes: 2 ** 31 };
  const packages = new FunctionPackages({
    directory,
    env,
    run,
    limits,
    store: () => undefined,
    unpack: async () => {},
    log,
  });
  onTestFinished(() => packages.close());
  const interpreter = await findInterpreter('python3', undefined, run);
  if (typeof interpreter === 'string') throw new Error(interpreter);
  return { packages, interpreter, wheels, directory, env, run, lines };
}

it('packages are installed once for each owner, and the function imports them', async () => {
  const { packages, interpreter, directory, env, run, lines, wheels } = await node();
  const both = await Promise.all([1, 2].map(() => packages.prepare('project:a', ['otela-probe'], interpreter)));
  expect(new Set(both.map((one) => one?.directory)).size).toBe(1);
  expect(await packages.prepare('project:a', ['otela-probe'], interpreter)).toMatchObject({
    directory: both[0]?.directory,
  });
  expect(lines.filter((line) => line.includes('installing'))).toHaveLength(1);
  expect(await packages.prepare('project:a', [], interpreter)).toBeUndefined();
  const other = await packages.prepare('project:b', ['otela-probe'], interpreter);
  expect(other?.directory).not.toBe(both[0]?.directory);
  expect(readdirSync(directory)).toHaveLength(2);

  const starterLimits = { python: 'python3', loadMs: 20_000, callMs: 20_000, memoryBytes: 2 ** 31 };
  const log = () => {};
  const shared = {
    limits: starterLimits,
    env,
    temporary: wheels,
    run,
    packages,
    sandbox: undefined,
    weights: () => undefined,
    log,
  };
  const options = { requirements: ['otela-probe'], weights: [], batch_size: 'auto' as const };
  const code = 'import otela_probe\ndef infer(state, lines):\n    return [otela_probe.answer]\n';
  const made = await new FunctionStarter(shared).start({ context: 'a', owner: 'project:a', code, options }, undefined);
  onTestFinished(() => made.stop());
  expect(await made.load()).toBeUndefined();
  expect(await made.call(['0'])).toMatchObject({ outputs: ['42'] });
});

it('uv installs them where it exists, and its errors name the package', async ({ skip }) => {
  skip(NO_UV !== undefined, NO_UV);
  const { packages, interpreter, directory, lines, wheels } = await node(`${dirname(PYTHON)}:`);
  const installed = await packages.prepare('project:a', ['otela-probe'], interpreter);
  expect(existsSync(join(installed?.directory ?? '', 'otela_probe.py'))).toBe(true);
  const compiled = `__pycache__/otela_probe.cpython-${interpreter.version.replace('.', '')}.pyc`;
  expect(existsSync(join(installed?.directory ?? '', compiled))).toBe(true);
  expect(existsSync(join(wheels, '.cache/uv'))).toBe(true);
  expect(lines.filter((line) => line.includes('installing'))).toHaveLength(1);
  await expect(packages.prepare('project:a', ['otela-missing==9'], interpreter)).rejects.toThrow(/uv|otela-missing/);
  await expect(packages.prepare('project:a', ['otela-hostile'], interpreter)).rejects.toThrow('otela-hostile');
  expect(existsSync(join(wheels, 'ran'))).toBe(false);
  expect(readdirSync(directory)).toHaveLength(1);
});

it('pip installs what uv cannot: uv does not read pip’s configuration', async ({ skip }) => {
  skip(NO_UV !== undefined, NO_UV);
  const { packages, interpreter } = await node(`${dirname(PYTHON)}:`, false);
  const installed = await packages.prepare('project:a', ['otela-probe'], interpreter);
  expect(existsSync(join(installed?.directory ?? '', 'otela_probe.py'))).toBe(true);
});

it('with a store of weights, processes share its packages until the last one has ended', async () => {
  const { interpreter, env, run, directory } = await node();
  let [asked, released] = [0, 0];
  const store = {
    packages: async (digest: string) => {
      asked++;
      return { directory: `/weights/${digest.length}`, release: () => void released++ };
    },
  };
  const limits = { installMs: 1_000, memoryBytes: 2 ** 31 };
  const packages = new FunctionPackages({
    directory,
    env,
    run,
    limits,
    store: () => store,
    unpack: async () => {},
    log: () => {},
  });
  const [one, two] = [
    await packages.prepare('project:a', ['torch', 'numpy'], interpreter),
    await packages.prepare('project:a', ['numpy', 'torch'], interpreter),
  ];
  expect([one?.directory, two?.directory]).toEqual(['/weights/64', '/weights/64']);
  one?.release();
  expect(released).toBe(0);
  two?.release();
  expect([asked, released]).toEqual([2, 1]);
  expect(readdirSync(directory)).toEqual([]);
});

it('a package that does not exist, and one whose installation would run its code, are named; nothing of them stays', async () => {
  const { packages, interpreter, directory, wheels } = await node();
  await expect(packages.prepare('project:a', ['otela-missing==9'], interpreter)).rejects.toThrow(
    /otela-missing==9 could not be installed on this node .* wheels .*otela-missing/s,
  );
  await expect(packages.prepare('project:a', ['otela-hostile'], interpreter)).rejects.toThrow('otela-hostile');
  expect(existsSync(join(wheels, 'ran'))).toBe(false);
  expect(readdirSync(directory)).toEqual([]);
});

it('an installation ends with its agent, and sets that are unused for two weeks are deleted', async () => {
  const { packages, interpreter, directory, env, run } = await node();
  packages.close();
  await expect(packages.prepare('project:a', ['otela-probe'], interpreter)).rejects.toThrow('the agent is stopping');
  const [old, young, foreign] = ['a'.repeat(40), 'b'.repeat(40), 'notes'].map((name) => join(directory, name));
  const longAgo = new Date(Date.now() - 15 * 86_400_000);
  for (const path of [old, young, foreign]) if (path !== undefined) mkdirSync(path);
  for (const path of [old, foreign]) if (path !== undefined) utimesSync(path, longAgo, longAgo);
  writeFileSync(join(directory, 'file'), '');
  const limits = { installMs: 1, memoryBytes: 1 };
  new FunctionPackages({ directory, env, run, limits, store: () => undefined, unpack: async () => {}, log: () => {} });
  expect(readdirSync(directory).sort()).toEqual(['b'.repeat(40), 'file', 'notes']);
});

it('a Python that this node lacks is named, with what to do', async () => {
  const found = await findInterpreter('python3', '3.99', toolRunner({ PATH: process.env.PATH }));
  expect(found).toMatch(/declares Python 3.99, and this node has Python 3\.\d+: install python3.99 there/);
});
