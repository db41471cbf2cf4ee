/**
 * Installs the packages or the environment that functions declare, once for each owner and set of packages: once in a
 * cluster if its nodes store weights, otherwise once on each node.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { errorText } from '../../../shared/text/error-text.ts';
import { childEnvironment } from '../../host/child-environment.ts';
import type { RunTool } from '../../host/run-tool.ts';
import { runBounded } from './bounded-command.ts';
import { installEnvironment, type PackedEnvironment, type Unpack } from './function-environments.ts';
import type { Interpreter } from './python-interpreter.ts';

interface PackagesOptions {
  /** Where the packages are stored, in a directory for each set. Several agents may share it. */
  directory: string;
  env: Readonly<Record<string, string | undefined>>;
  run: RunTool;
  limits: { installMs: number; memoryBytes: number };
  /** Returns the store of weights of this node; undefined: it has none. */
  store(): PackageStore | undefined;
  /** Unpacks an environment. */
  unpack: Unpack;
  log(line: string): void;
}

export interface PackageStore {
  /** Returns the packages with this digest, from other nodes if they have them. They stay until `release` is called. */
  packages(digest: string, withinMs: number, install: Install): Promise<Installed>;
}

type Install = (directory: string, signal: AbortSignal) => Promise<void>;

export interface Installed {
  directory: string;
  /** Call when no process uses the directory any more. */
  release(): void;
}

/** A set of packages that was not used for this long is deleted when an agent starts. */
const UNUSED_MS = 14 * 86_400_000;
/** Maximum number of sets that one start checks. */
const CHECKED_MAX = 1_000;
const WHY_CHARS = 700;
/** Length of a directory's name. */
const KEY_CHARS = 40;

/** With the certificates of the system, to which a site adds its own. */
const UV_OPTIONS = ['--native-tls'];
const PIP_OPTIONS = ['--no-input', '--no-compile', '--disable-pip-version-check'];
/**
 * Compiles the packages without running them. Processes cannot write there, so each would compile again what it
 * imports. The files do not depend on times, which an archive does not keep. A file that is not valid Python is left
 * out.
 */
const COMPILE = ['-I', '-m', 'compileall', '-q', '-j', '0', '--invalidation-mode', 'unchecked-hash'];

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
  /** Number of processes that use a digest's packages. At most one for each loaded process. */
  readonly #users = new Map<string, number>();
  readonly #stop = new AbortController();

  constructor(options: PackagesOptions) {
    this.#options = options;
    this.#prune();
  }

  /**
   * Returns the packages, or undefined if none are declared.
   * @param owner owners never share packages, so that no owner could replace another's
   * @throws PackagesError
   */
  async prepare(
    owner: string,
    requirements: readonly string[],
    interpreter: Interpreter,
  ): Promise<Installed | undefined> {
    if (requirements.length === 0) return undefined;
    const names = [...requirements].sort();
    const { version, platform } = interpreter;
    const digest = createHash('sha256')
      .update(JSON.stringify([owner, version, platform, names]))
      .digest('hex');
    return this.#provide(digest, (directory) => this.#installInto(directory, names, interpreter));
  }

  /**
   * Returns a directory in which the environment is unpacked; see `pythonIn`.
   * @param owner owners never share environments
   * @throws PackagesError
   */
  environment(owner: string, packed: PackedEnvironment): Promise<Installed> {
    const digest = createHash('sha256')
      .update(JSON.stringify([owner, 'environment', packed.sha256]))
      .digest('hex');
    return this.#provide(digest, async (directory, signal) => {
      const { limits, log, unpack } = this.#options;
      const began = performance.now();
      const ends = AbortSignal.any([signal, this.#stop.signal, AbortSignal.timeout(limits.installMs)]);
      await installEnvironment(packed, directory, unpack, ends).catch((error: unknown) => {
        throw new PackagesError(`the function's environment cannot be unpacked on this node: ${errorText(error)}`);
      });
      log(`functions: unpacked an environment in ${((performance.now() - began) / 1_000).toFixed(1)} s`);
    });
  }

  async #provide(digest: string, install: Install): Promise<Installed> {
    const store = this.#options.store();
    if (store === undefined) return { directory: await this.#prepareHere(digest, install), release() {} };
    return this.#shared(store, digest, install);
  }

  /** The packages stay in the store until the last process that uses them has ended. */
  async #shared(store: PackageStore, digest: string, install: Install): Promise<Installed> {
    this.#users.set(digest, (this.#users.get(digest) ?? 0) + 1);
    const leave = () => {
      const users = (this.#users.get(digest) ?? 1) - 1;
      if (users > 0) this.#users.set(digest, users);
      else this.#users.delete(digest);
      return users === 0;
    };
    try {
      const { installMs } = this.#options.limits;
      const installed = await store.packages(digest, installMs, install);
      return { directory: installed.directory, release: () => leave() && installed.release() };
    } catch (error) {
      leave();
      throw error;
    }
  }

  async #prepareHere(digest: string, install: Install): Promise<string> {
    const path = join(this.#options.directory, digest.slice(0, KEY_CHARS));
    if (!isDirectory(path)) {
      let running = this.#running.get(path);
      if (running === undefined) {
        running = this.#install(path, install).finally(() => this.#running.delete(path));
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

  async #install(path: string, install: Install): Promise<void> {
    const partial = `${path}.partial-${randomUUID()}`;
    try {
      mkdirSync(partial, { recursive: true, mode: 0o700 });
      await install(partial, this.#stop.signal);
      putInPlace(partial, path);
    } finally {
      rmSync(partial, { recursive: true, force: true });
    }
  }

  /** @throws PackagesError */
  async #installInto(directory: string, names: readonly string[], { executable, version }: Interpreter): Promise<void> {
    const { env, limits, log, run } = this.#options;
    const began = performance.now();
    try {
      // Only wheels, because pip runs the code of other packages while it installs them.
      const common = ['install', '--quiet', '--only-binary', ':all:', '--target', directory];
      log(`functions: installing ${names.join(', ')} for Python ${version}`);
      const { installMs: limitMs, memoryBytes } = limits;
      const bounds = { limitMs, memoryBytes, signal: this.#stop.signal };
      const options = { cwd: directory, env: childEnvironment(env), ...bounds };
      const hasUv = (await run('uv', ['--version'])).ok;
      const uv = ['pip', ...common, ...UV_OPTIONS, '--python', executable, ...names];
      const byUv = hasUv ? await runBounded('uv', uv, options) : undefined;
      // uv does not read pip's configuration, which may name the site's own index, or its certificates.
      const pip = ['-m', 'pip', ...common, ...PIP_OPTIONS, ...names];
      const byPip = byUv !== undefined && byUv.why === undefined ? byUv : await runBounded(executable, pip, options);
      const hasPip = !byPip.lines.some((line) => line.endsWith('No module named pip'));
      const ended = hasPip ? byPip : (byUv ?? byPip);
      if (ended.why !== undefined) throw new PackagesError(failure(names, ended.why, ended.lines));
      await runBounded(executable, [...COMPILE, directory], options);
      log(`functions: installed ${names.join(', ')} in ${((performance.now() - began) / 1_000).toFixed(1)} s`);
    } catch (error) {
      if (error instanceof PackagesError) throw error;
      throw new PackagesError(`the function's packages cannot be stored on this node: ${errorText(error)}`);
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
