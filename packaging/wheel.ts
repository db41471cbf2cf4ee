/** Makes the Python wheel with flit_core in a cached virtual environment. */
import { execFile } from 'node:child_process';
import { chmod, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * Writes the wheel into `out`; resolves with its file name.
 *
 * @throws Error if Python with venv is missing, or flit_core cannot be installed
 */
export async function wheel(source: string, out: string, cache: string, date: number): Promise<string> {
  const builder = /flit_core==[\d.]+/.exec(await readFile(join(source, 'pyproject.toml'), 'utf8'))?.[0];
  if (builder === undefined) throw new Error(`${source}/pyproject.toml does not pin a version of flit_core`);
  const venv = join(cache, `wheel-${builder}`);
  const python = join(venv, 'bin/python');
  const isMade = await run(python, ['-c', 'import flit_core']).then(
    () => true,
    () => false,
  );
  if (!isMade) {
    await run('python3', ['-m', 'venv', '--clear', venv]).catch((cause: Error & { code?: unknown }) => {
      if (cause.code !== 'ENOENT') throw cause;
      throw new Error('there is no python3 here (Debian: apt-get install python3-venv)');
    });
    await run(python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', builder]);
  }
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(date) };
  const { stdout, stderr } = await run(python, ['-m', 'flit_core.wheel', '--outdir', out, source], { env });
  const name = /[\w.-]+\.whl/.exec(`${stdout}${stderr}`)?.[0];
  if (name === undefined) throw new Error(`flit_core did not print the name of the wheel: ${stdout}${stderr}`);
  // flit_core writes the wheel with the mode of a temporary file, which others cannot read.
  await chmod(join(out, name), 0o644);
  return name;
}
