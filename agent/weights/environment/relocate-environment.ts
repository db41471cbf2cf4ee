/**
 * Makes an environment work in the directory into which it was unpacked. Its scripts contain the path of their
 * interpreter in the directory where it was packed.
 */
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, type FileHandle, lstat, open, readdir, stat } from 'node:fs/promises';
import { basename, delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { errorText } from '../../../shared/text/error-text.ts';
import { childEnvironment } from '../../host/child-environment.ts';
import { WeightsError } from '../weights-error.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Timeout of conda-unpack, which rewrites hundreds of files. */
const CONDA_UNPACK_MS = 10 * 60_000;
const OUTPUT_MAX_BYTES = 1024 * 1024;
/** Maximum size of a script. Scripts written by pip have 300 bytes; a larger file is a program. */
const SCRIPT_MAX_BYTES = 256 * 1024;

/** Interpreters of the machine. A script that names one keeps it. */
const SYSTEM = /^(\/usr)?\/bin\//;

/** The directory that contains `bin`: the archive's root, or its only directory. @throws WeightsError `wrong` */
export async function environmentPrefix(directory: string): Promise<string> {
  if (await isDirectory(join(directory, 'bin'))) return directory;
  const [only, ...more] = await readdir(directory);
  const below = join(directory, only ?? '.');
  if (only !== undefined && more.length === 0 && (await isDirectory(join(below, 'bin')))) return below;
  throw new WeightsError('wrong', 'the environment has no directory bin: pack it with `tar -C ENVIRONMENT -c .`');
}

interface RelocateOptions {
  /** Whether a program of the environment may run with the agent's rights. */
  isTrusted: boolean;
  env: Env;
  signal: AbortSignal;
}

/** @throws WeightsError `wrong` if conda-unpack fails */
export async function relocate(prefix: string, { isTrusted, env, signal }: RelocateOptions): Promise<void> {
  const bin = join(prefix, 'bin');
  const condaUnpack = join(bin, 'conda-unpack');
  if (isTrusted && (await isExecutable(condaUnpack))) return runCondaUnpack(condaUnpack, prefix, env, signal);
  for (const name of await readdir(bin)) await rewriteInterpreter(join(bin, name), bin);
}

/** The variables that `activate` sets. Scripts in `etc/conda/activate.d` are not run. */
export async function activation(prefix: string, env: Env): Promise<Record<string, string>> {
  const path = [join(prefix, 'bin'), env.PATH].filter((one) => one !== undefined && one !== '').join(delimiter);
  if (await exists(join(prefix, 'conda-meta'))) return { PATH: path, CONDA_PREFIX: prefix };
  return { PATH: path, VIRTUAL_ENV: prefix };
}

async function runCondaUnpack(file: string, prefix: string, env: Env, signal: AbortSignal): Promise<void> {
  const own = { ...childEnvironment(env), ...(await activation(prefix, env)) };
  const options = { env: own, signal, timeout: CONDA_UNPACK_MS, maxBuffer: OUTPUT_MAX_BYTES };
  await promisify(execFile)(file, [], options).catch((cause: unknown) => {
    const message = errorText(cause).slice(0, 500);
    throw new WeightsError('wrong', `conda-unpack of the environment failed: ${message}`, { cause });
  });
}

/**
 * The two forms in which pip and uv name the interpreter in a script: in the first line, or, if its path is long or
 * contains a space, in a line that is valid in both shell and Python.
 */
const NAMED = [
  /^#!(\/\S+\/python[\d.]*)\n/,
  /^#!\/bin\/sh\n'''exec' ["']?(\/[^"'\n]+\/python[\d.]*)["']? "\$0" "\$@"\n' '''\n/,
] as const;
/** Maximum length of a script's first line in Linux before 5.1, as in RHEL 8. */
const LINE_MAX_BYTES = 127;

/**
 * Replaces the interpreter's path in a script by the path of the program with the same name in `bin`, if there is one.
 */
async function rewriteInterpreter(path: string, bin: string): Promise<void> {
  const found = await lstat(path);
  if (!found.isFile() || found.size > SCRIPT_MAX_BYTES) return;
  let file: FileHandle | undefined;
  try {
    file = await open(path, constants.O_RDWR | constants.O_NOFOLLOW);
    // latin1 keeps each byte, because a script may have any encoding.
    const text = (await file.readFile()).toString('latin1');
    const [head = '', interpreter = ''] = NAMED.map((form) => form.exec(text)).find((one) => one !== null) ?? [];
    const here = join(bin, basename(interpreter));
    if (interpreter === '' || SYSTEM.test(interpreter) || interpreter === here || !(await exists(here))) return;
    const changed = Buffer.concat([Buffer.from(headFor(here)), Buffer.from(text.slice(head.length), 'latin1')]);
    await file.truncate(0);
    await file.write(changed, 0, changed.length, 0);
  } finally {
    await file?.close();
  }
}

function headFor(interpreter: string): string {
  const line = `#!${interpreter}\n`;
  const fits = Buffer.byteLength(line) <= LINE_MAX_BYTES && !/\s/.test(interpreter);
  return fits ? line : `#!/bin/sh\n'''exec' "${interpreter}" "$0" "$@"\n' '''\n`;
}

async function isDirectory(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isDirectory() === true;
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}
