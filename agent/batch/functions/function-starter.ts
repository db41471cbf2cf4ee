/** Starts processes of functions: with the Python and the packages that they declare, on their GPUs, in the sandbox. */
import { join } from 'node:path';
import { errorText } from '../../../shared/text/error-text.ts';
import { cacheFolder, parseSource, sourceText } from '../../../shared/weights/weights-source.ts';
import type { RunTool } from '../../host/run-tool.ts';
import { type PackedEnvironment, pythonIn } from './function-environments.ts';
import type { FunctionOptions } from './function-options.ts';
import type { FunctionPackages, Installed, PackageStore } from './function-packages.ts';
import { type FunctionLimits, FunctionProcess } from './function-process.ts';
import type { FunctionSandbox } from './function-sandbox.ts';
import { findInterpreter, type Interpreter } from './python-interpreter.ts';
import { StagedFiles } from './staged-files.ts';

type Env = Readonly<Record<string, string | undefined>>;

export interface FunctionCode {
  context: string;
  name?: string;
  code: string;
  /** `project:ID`, `user:ID` or `key:ID`. */
  owner: string;
  /** Parsed from the code; or why it cannot be parsed. */
  options: FunctionOptions | Error;
  /** The environment that it declares in place of packages, with which its processes run. */
  environment?: PackedEnvironment;
  /** Values of the secrets that it declares, as the gateway last sent them. Absent: it declares none. */
  secrets?: Readonly<Record<string, string>>;
}

interface StarterOptions {
  limits: FunctionLimits;
  env: Env;
  /** Parent directory of the functions' temporary directories. */
  temporary: string;
  run: RunTool;
  packages: FunctionPackages;
  /** Undefined: the processes run with all rights of the agent's user. */
  sandbox: FunctionSandbox | undefined;
  /** Returns the store of weights of this node; undefined: it has none, and functions load their weights themselves. */
  weights(): NodeWeights | undefined;
  log(line: string): void;
}

interface NodeWeights extends PackageStore {
  /** In the layout of a Hugging Face cache. */
  directory: string;
  /**
   * Copies weights to the directory, from other nodes or from their source.
   * @param token of the function's owner at the hub; undefined: the agent's own
   */
  pull(source: string, token: string | undefined): Promise<void>;
}

/** Variables that name files or directories which a function reads. */
const READ_VARIABLES = [
  'HF_HUB_CACHE',
  'HF_DATASETS_CACHE',
  'TORCH_HOME',
  'CUDA_HOME',
  'SSL_CERT_FILE',
  'REQUESTS_CA_BUNDLE',
] as const;

/** The function could not be loaded. */
export class LoadError extends Error {
  constructor(why: string) {
    super(why);
    this.name = 'LoadError';
  }
}

/** The function declares what this node does not have. Another node may run it. */
export class UnsuitableNodeError extends LoadError {
  constructor(why: string) {
    super(why);
    this.name = 'UnsuitableNodeError';
  }
}

/** What a process runs with. */
interface Software extends Pick<Interpreter, 'executable' | 'prefixes'> {
  /** Installed for it. Undefined: nothing. */
  directory: string | undefined;
  /** Where Python finds the declared packages. */
  packages?: string | undefined;
  release(): void;
}

interface PreparedWeights {
  env: Env;
  /** The directories of the repositories that the function declares. */
  folders: string[];
}

/** The variable in which Hugging Face's library looks for a token. */
const HUB_TOKEN = 'HF_TOKEN';
/** An interpreter is asked for its version again after this time, because the operator may have replaced it. */
const INTERPRETER_MS = 600_000;

export class FunctionStarter {
  readonly #options: StarterOptions;
  /** Interpreters by the declared version; undefined: none was declared. At most one for each minor version of Python. */
  readonly #interpreters = new Map<string | undefined, { found: Interpreter; atMs: number }>();

  constructor(options: StarterOptions) {
    this.#options = options;
  }

  /**
   * Starts a process, which is not loaded yet.
   * @param gpus names of its GPUs, as CUDA_VISIBLE_DEVICES takes them; undefined: the agent's variable
   * @throws LoadError
   */
  async start(code: FunctionCode, gpus: readonly string[] | undefined): Promise<FunctionProcess> {
    const { temporary, sandbox, log } = this.#options;
    const limits = this.#limitsOf(code);
    const options = code.options instanceof Error ? undefined : code.options;
    const installed = await this.#install(code, options).catch((error: unknown) => {
      if (error instanceof LoadError) throw error;
      throw new LoadError(error instanceof Error ? error.message : String(error));
    });
    let files: StagedFiles | undefined;
    try {
      const { secrets = {} } = code;
      const { env, folders } = await this.#withWeights(options?.weights ?? [], secrets[HUB_TOKEN]);
      const { executable, prefixes } = installed;
      const store = this.#options.weights()?.directory;
      const read = readPaths(this.#options.env).filter((path) => path !== store);
      files = new StagedFiles(temporary);
      const shown = [executable, ...prefixes, ...read, ...folders, files.directory, ...optional(installed.directory)];
      return new FunctionProcess({
        limits: { ...limits, python: executable },
        // The PATH stays that of the agent: it also finds the programs that make the sandbox.
        env: gpus === undefined ? env : { ...env, CUDA_VISIBLE_DEVICES: gpus.join(',') },
        secrets,
        files,
        packages: installed.packages,
        temporary,
        code: code.code,
        name: code.name,
        ...(sandbox && { wrap: (command, directory) => sandbox.wrap(command, { directory, shown }) }),
        onEnd: () => installed.release(),
        log,
      });
    } catch (error) {
      files?.remove();
      installed.release();
      throw error;
    }
  }

  /** Installs what the function declares: its environment, or the packages for this node's Python. @throws Error */
  async #install(code: FunctionCode, options: FunctionOptions | undefined): Promise<Software> {
    const { packages } = this.#options;
    if (options?.environment !== undefined) {
      if (code.environment === undefined) throw new LoadError('the function names no files of its environment');
      const { directory, release } = await packages.environment(code.owner, code.environment);
      const executable = await pythonIn(directory);
      if (executable !== undefined) return { executable, prefixes: [directory], directory, release };
      release();
      throw new LoadError('the environment has no bin/python: pack it with conda-pack, or as docs/functions.md says');
    }
    const interpreter = await this.#interpreter(options?.python);
    if (typeof interpreter === 'string') throw new UnsuitableNodeError(interpreter);
    const installed = await packages.prepare(code.owner, options?.requirements ?? [], interpreter);
    const { executable, prefixes } = interpreter;
    const { directory, release = () => {} }: Partial<Installed> = installed ?? {};
    return { executable, prefixes, directory, packages: directory, release };
  }

  /** @returns the interpreter of the declared version, or why there is none */
  async #interpreter(version: string | undefined): Promise<Interpreter | string> {
    const known = this.#interpreters.get(version);
    if (known !== undefined && performance.now() - known.atMs < INTERPRETER_MS) return known.found;
    const found = await findInterpreter(this.#options.limits.python, version, this.#options.run);
    if (typeof found !== 'string') this.#interpreters.set(version, { found, atMs: performance.now() });
    return found;
  }

  /** Finds the node's interpreter before the first function needs it, because this takes a fifth of a second. */
  async warm(): Promise<void> {
    await this.#interpreter(undefined);
  }

  /** Ends what `start` waits for. */
  close(): void {
    this.#options.packages.close();
  }

  /**
   * Copies weights of the hub to this node, and returns the variables with which they are found. A function cannot name
   * other sources, such as a directory, because the agent reads them with its rights.
   * @throws LoadError
   */
  async #withWeights(names: readonly string[], token: string | undefined): Promise<PreparedWeights> {
    const { env, weights } = this.#options;
    const sources = names.map((name) => {
      const source = parseSource(`hub:${name}`);
      if (source === undefined)
        throw new LoadError(`weights: "${name}" is not a repository of the hub, such as Qwen/Qwen3-8B@main`);
      return source;
    });
    const store = weights();
    if (sources.length === 0 || store === undefined) return { env, folders: [] };
    for (const source of sources.map(sourceText))
      await store.pull(source, token).catch((error: unknown) => {
        throw new LoadError(`the weights ${source} could not be copied to this node: ${errorText(error)}`);
      });
    return {
      env: { ...env, HF_HUB_CACHE: store.directory, HF_HUB_OFFLINE: '1' },
      folders: sources.map((source) => join(store.directory, cacheFolder(source))),
    };
  }

  /** The function's limits, within those of the node. @throws LoadError */
  #limitsOf({ options }: FunctionCode): FunctionLimits {
    const { limits } = this.#options;
    if (options instanceof Error) throw new LoadError(options.message);
    const { memory_bytes: memoryBytes = limits.memoryBytes, timeout_s: seconds } = options;
    if (memoryBytes > limits.memoryBytes)
      throw new UnsuitableNodeError(
        `the function declares ${mib(memoryBytes)} MiB of memory, and this node allows ${mib(limits.memoryBytes)} MiB (--functions-memory)`,
      );
    const timeoutMs = seconds === undefined ? Number.POSITIVE_INFINITY : seconds * 1_000;
    return {
      python: limits.python,
      memoryBytes,
      loadMs: Math.min(limits.loadMs, timeoutMs),
      callMs: Math.min(limits.callMs, timeoutMs),
    };
  }
}

/** Paths that functions read, apart from Python. The token that Hugging Face stores in HF_HOME is not among them. */
function readPaths(env: Env): string[] {
  const { HF_HOME: hub, LD_LIBRARY_PATH: libraries = '' } = env;
  return [
    ...READ_VARIABLES.flatMap((name) => optional(env[name])),
    ...(hub === undefined ? [] : ['hub', 'datasets', 'modules'].map((name) => join(hub, name))),
    ...libraries.split(':'),
  ];
}

const optional = (value: string | undefined): string[] => (value === undefined ? [] : [value]);

function mib(bytes: number): number {
  return Math.floor(bytes / 2 ** 20);
}
