/** Finds the Python that a function declares. */
import type { RunTool } from '../../host/run-tool.ts';

export interface Interpreter {
  /** Path of the program itself, not of a wrapper such as pyenv's. */
  executable: string;
  version: string;
  /** The system for which packages must be built: `linux-x86_64 glibc-2.36`. */
  platform: string;
  /** Directories that the interpreter needs: of its virtual environment and of its installation. */
  prefixes: string[];
}

const ASK = `import platform, sys, sysconfig
print("%d.%d" % sys.version_info[:2], sysconfig.get_platform() + " " + "-".join(platform.libc_ver()))
print(sys.executable, sys.prefix, sys.base_prefix, sep="\\n")`;

/** @returns the interpreter, or why it cannot be used */
async function readInterpreter(python: string, run: RunTool): Promise<Interpreter | string> {
  const answer = await run(python, ['-c', ASK]);
  if (!answer.ok) return answer.reason;
  const [head = '', executable = '', ...prefixes] = answer.stdout.trim().split('\n');
  const [version = ''] = head.split(' ', 1);
  return { version, platform: head.slice(version.length + 1), executable, prefixes: [...new Set(prefixes)] };
}

/**
 * Returns the node's interpreter, or, if a function declares another version, one of that version.
 * @param version for example `3.12`
 * @returns why there is none
 */
export async function findInterpreter(
  python: string,
  version: string | undefined,
  run: RunTool,
): Promise<Interpreter | string> {
  const own = await readInterpreter(python, run);
  if (version === undefined || (typeof own !== 'string' && own.version === version)) return own;
  const managed = await run('uv', ['python', 'find', '--no-project', version]);
  const candidates = [`python${version}`, ...(managed.ok ? [managed.stdout.trim()] : [])];
  for (const candidate of candidates) {
    const found = await readInterpreter(candidate, run);
    if (typeof found !== 'string' && found.version === version) return found;
  }
  const has = typeof own === 'string' ? `cannot run ${python}` : `has Python ${own.version}`;
  return `the function declares Python ${version}, and this node ${has}: install python${version} there (or uv python install ${version}), or declare another version`;
}
