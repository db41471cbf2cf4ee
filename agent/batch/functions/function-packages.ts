/** Installs the packages that functions declare, once for each owner and set of packages. */
import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { errorText } from '../../../shared/text/error-text.ts';
import { childEnvironment } from '../../host/child-environment.ts';
import type { RunTool } from '../../host/run-tool.ts';
import { runBounded } from './bounded-command.ts';
import type { Interpreter } from './python-interpreter.ts';

interface PackagesOptions {
  /** Where the packages are stored, in a directory for each set. Several agents may share it. */
  directory: string;
  env: Readonly<Record<string, string | undefined>>;
  run: RunTool;
  limits: { installMs: number; memoryBytes: number };
  log(line: string): void;
}

/** A set of packages that was not used for this long is deleted when an agent starts. */
const UNUSED_MS = 14 * 86_400_000;
/** Maximum number of sets that one start checks. */
const CHECKED_MAX = 1_000;
const WHY_CHARS = 700;

/** The packages could not be installed. */
class PackagesError extends Error {
  constructor(why: string) {
    super(why);
    this.name = 'PackagesError';
  }
}

export class FunctionPackages {
  readonly #options: PackagesOptions;
  /** Installations that run now, by directory. At most one for each function that is being loaded. */
  readonly #running = new Map<string, Promise<void>>();
  readonly #stop = new AbortController();

  constructor(options: PackagesOptions) {
    this.#options = options;
    this.#prune();
  }

  /**
   * Returns the directory that has the packages, or undefined if none are declared.
   * @param owner owners never share packages, so that no owner could replace another's
   * @throws PackagesError
   */
  async prepare(owner: string, requirements: readonly string[], interpreter: Interpreter): Promise<string | undefined> {
    if (requirements.length === 0) return undefined;
    const names = [...requirements].sort();
    const key = createHash('sha256')
      .update(JSON.stringify([owner, interpreter.version, process.arch, names]))
      .digest('hex')
      .slice(0, 40);
    const path = join(this.#options.directory, key);
    if (!isDirectory(path)) {
      let running = this.#running.get(path);
      if (running === undefined) {
        running = this.#install(path, names, interpreter).finally(() => this.#running.delete(path));
        this.#running.set(path, running);
      }
      await running;
    }
    touch(path);
    return path;
  }

  /** Ends running installations. */
  close(): void {
    this.#stop.abort();
  }

  async #install(path: string, names: readonly string[], { executable, version }: Interpreter): Promise<void> {
    const { env, limits, log, run } = this.#options;
    const partial = `${path}.partial-${randomUUID()}`;
    const began = performance.now();
    try {
      mkdirSync(partial, { recursive: true, mode: 0o700 });
      const hasUv = (await run('uv', ['--version'])).ok;
      // Only wheels, because pip runs the code of other packages while it installs them.
      const common = ['install', '--only-binary', ':all:', '--target', partial];
      const [file, ...args] = hasUv
        ? ['uv', 'pip', ...common, '--quiet', '--python', executable, ...names]
        : [executable, '-m', 'pip', ...common, '--quiet', '--no-input', '--disable-pip-version-check', ...names];
      log(`functions: installing ${names.join(', ')} for Python ${version}`);
      const { installMs: limitMs, memoryBytes } = limits;
      const bounds = { limitMs, memoryBytes, signal: this.#stop.signal };
      const ended = await runBounded(file ?? '', args, { cwd: partial, env: childEnvironment(env), ...bounds });
      if (ended.why !== undefined) throw new PackagesError(failure(names, ended.why, ended.lines));
      putInPlace(partial, path);
      log(`functions: installed ${names.join(', ')} in ${((performance.now() - began) / 1_000).toFixed(1)} s`);
    } catch (error) {
      if (error instanceof PackagesError) throw error;
      throw new PackagesError(`the function's packages cannot be stored on this node: ${errorText(error)}`);
    } finally {
      rmSync(partial, { recursive: true, force: true });
    }
  }

  /** Deletes sets that no agent used for a long time, and partial ones that an agent left. */
  #prune(): void {
    const { directory, log } = this.#options;
    try {
      for (const name of readdirSync(directory).slice(0, CHECKED_MAX)) {
        const path = join(directory, name);
        if (/^[0-9a-f]{40}(?:\.partial-|$)/.test(name) && Date.now() - statSync(path).mtimeMs > UNUSED_MS)
          rmSync(path, { recursive: true, force: true });
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        log(`functions: unused packages remain: ${errorText(error)}`);
    }
  }
}

function failure(names: readonly string[], why: string, lines: readonly string[]): string {
  const said = lines.filter((line) => !/notice|WARNING/i.test(line)).join(' | ');
  return `the packages ${names.join(', ')} could not be installed on this node (${why}). They must exist as wheels for its platform and Python. The installer said: ${said.slice(-WHY_CHARS)}`;
}

/** Renames a directory. Another agent may have made the same one in the meantime. */
function putInPlace(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!isDirectory(to)) throw error;
  }
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** Notes that the set is used. It may be on a file system that is read-only here. */
function touch(path: string): void {
  try {
    utimesSync(path, new Date(), new Date());
  } catch {}
}
