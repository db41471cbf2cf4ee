/**
 * `serve --processes N`: N processes of the gateway that accept connections on one port. A process that ends is started
 * again. This process only starts them and passes signals on.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { rm, symlink } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { createPrivateFile, writePrivateFile } from '../../../../node/private-file.ts';
import { EXIT_DONE, UsageError } from '../../../../shared/command-line/index.ts';
import { backoffMs } from '../../../../shared/timing/backoff.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { CommandError } from '../../../command-error.ts';
import { LINK_KEY_FILE, OWNER } from '../cluster/directory-membership.ts';
import { makeDirectory } from '../data/make-directory.ts';
import { PROCESS_NUMBER, PROCESSES_DIRECTORY, REUSE_PORT, SHARED_DIRECTORY } from './process-count.ts';
import type { ServeOptions } from './serve.ts';

const KEY_BYTES = 32;
/** By this name, a process finds those that share its port. */
const PORT_NAME = randomUUID();
/** Pause before a process that ended is started again. It doubles while the process does not become ready. */
const RESTART = { minMs: 500, maxMs: 30_000 };
const READY = /^otela-gateway ready (\S+)$/;

interface ProcessesOptions {
  count: number;
  options: ServeOptions;
  /** Flags of `serve` that each process gets unchanged. */
  flags: readonly string[];
  onReady(url: string): void;
  log(line: string): void;
}

/** How the processes are started. */
interface ProcessPlan {
  /** Number of the process that creates the tables and the keys, and with SQLite has them. */
  first: number;
  argsOf(number: number): string[];
  envOf(number: number): Record<string, string>;
  /** True: the first process stops after the others have ended, because they need it. */
  firstStopsLast: boolean;
  /** Called when the first process is ready. */
  begun(): Promise<void>;
}

/** Resolves to the exit status when all processes have ended. @throws CommandError, UsageError */
export async function runProcesses({ count, options, flags, onReady, log }: ProcessesOptions): Promise<number> {
  if (options.port === 0) throw new UsageError('--processes needs a --port other than 0: the processes share it');
  await makeDirectory(options.data);
  const plan = options.database === undefined ? directoryPlan(options, flags) : databasePlan(options, flags);
  const others = new Set<RestartedProcess>();
  const start = (number: number) =>
    new RestartedProcess(plan.argsOf(number), plan.envOf(number), (line) => log(`process ${number}: ${line}`));
  const first = start(plan.first);
  let isStopping = false;
  const stop = (signal: NodeJS.Signals) => {
    for (const one of others) one.stop(signal);
    // The second signal ends all.
    const waits = plan.firstStopsLast && !isStopping;
    isStopping = true;
    if (!waits) return first.stop(signal);
    neverRejects(Promise.all([...others].map(({ ended }) => ended)).then(() => first.stop(signal)));
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(signal));
  process.on('SIGHUP', () => {
    for (const one of [first, ...others]) one.signal('SIGHUP');
  });
  const url = await first.ready;
  if (url === undefined) return first.ended;
  await plan.begun();
  for (let n = 1; n < count && !isStopping; n++) others.add(start(plan.first + n));
  await Promise.all([...others].map(({ ready }) => ready));
  if (!isStopping) onReady(url);
  await Promise.all([first, ...others].map(({ ended }) => ended));
  return EXIT_DONE;
}

/** Processes that share a database. */
function databasePlan({ data, cluster, files }: ServeOptions, flags: readonly string[]): ProcessPlan {
  if (existsSync(join(data, 'layout.json')))
    throw new CommandError(`${data} has the data of one process. Give --data another directory.`);
  const key = cluster?.keyFile ?? join(data, 'cluster.key');
  if (!existsSync(key)) createPrivateFile(key, newKey());
  return {
    first: 1,
    argsOf: (number) => [
      ...flags,
      ...['--data', join(data, `process-${number}`)],
      ...['--files', files ?? join(resolve(data), 'files')],
      ...['--cluster-key', key],
      ...['--cluster-address', addressOf(cluster, number)],
    ],
    envOf: () => ({}),
    firstStopsLast: false,
    begun: () => linkAdminKey(data),
  };
}

/** Processes that share a data directory. The first one uses it as a single gateway does. */
function directoryPlan({ data, files }: ServeOptions, flags: readonly string[]): ProcessPlan {
  const shared = resolve(data);
  const directory = join(shared, PROCESSES_DIRECTORY);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  // Addresses of processes that have ended.
  for (const name of readdirSync(directory)) if (name.endsWith('.json')) rmSync(join(directory, name));
  writePrivateFile(join(directory, LINK_KEY_FILE), newKey());
  return {
    first: OWNER,
    argsOf: (number) => [
      ...flags,
      ...['--data', number === OWNER ? shared : join(directory, `process-${number}`)],
      ...['--files', files ?? join(shared, 'files')],
    ],
    envOf: (number) => ({ [SHARED_DIRECTORY]: shared, [PROCESS_NUMBER]: String(number) }),
    firstStopsLast: true,
    begun: async () => {},
  };
}

function newKey(): string {
  return `${randomBytes(KEY_BYTES).toString('hex')}\n`;
}

/** With port 0, each process chooses a port; with another one, the processes have consecutive ports. */
function addressOf(cluster: ServeOptions['cluster'], number: number): string {
  if (cluster === undefined) return '127.0.0.1:0';
  const host = cluster.host.includes(':') ? `[${cluster.host}]` : cluster.host;
  return `${host}:${cluster.port === 0 ? 0 : cluster.port + number - 1}`;
}

/** The operator's key is at the same place as for one process. */
async function linkAdminKey(data: string): Promise<void> {
  const link = join(data, 'admin.key');
  await rm(link, { force: true });
  await symlink(join('process-1', 'admin.key'), link);
}

/** One process, which is started again whenever it ends, until it is stopped. */
class RestartedProcess {
  /** Resolves to the URL when the process is ready for the first time; undefined if it ended before. */
  readonly ready: Promise<string | undefined>;
  /** Resolves to the exit status when the process has ended and is not started again. */
  readonly ended: Promise<number>;
  readonly #args: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #log: (line: string) => void;
  readonly #ready = Promise.withResolvers<string | undefined>();
  readonly #ended = Promise.withResolvers<number>();
  #child: ChildProcess;
  #restart: NodeJS.Timeout | undefined;
  #failures = 0;
  #wasReady = false;
  #isStopping = false;

  constructor(args: readonly string[], env: Readonly<Record<string, string>>, log: (line: string) => void) {
    this.#args = args;
    this.#env = env;
    this.#log = log;
    this.ready = this.#ready.promise;
    this.ended = this.#ended.promise;
    this.#child = this.#spawn();
  }

  #spawn(): ChildProcess {
    const [, main = ''] = process.argv;
    const child = spawn(process.execPath, [...process.execArgv, main, 'serve', ...this.#args], {
      stdio: ['pipe', 'pipe', 'inherit'], // the process stops when its input ends, because this process was killed
      env: { ...process.env, ...this.#env, [REUSE_PORT]: PORT_NAME },
      detached: true, // signals of a terminal reach only this process, which passes them on
    });
    createInterface({ input: child.stdout }).on('line', (line) => this.#onLine(line));
    child.on('exit', (code, signal) => this.#onExit(code, signal));
    return child;
  }

  #onLine(line: string): void {
    const url = READY.exec(line)?.[1];
    if (url === undefined) return this.#log(line);
    this.#wasReady = true;
    this.#failures = 0;
    this.#ready.resolve(url);
  }

  #onExit(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#isStopping || !this.#wasReady) {
      this.#ready.resolve(undefined);
      return this.#ended.resolve(code ?? 1);
    }
    const ms = backoffMs(this.#failures++, RESTART);
    this.#log(`ended (${signal ?? `status ${code}`}); starting it again in ${ms / 1_000} s`);
    this.#restart = setTimeout(() => {
      this.#child = this.#spawn();
    }, ms);
  }

  stop(signal: NodeJS.Signals): void {
    this.#isStopping = true;
    clearTimeout(this.#restart);
    if (this.#child.exitCode === null && this.#child.signalCode === null) this.#child.kill(signal);
    else this.#ended.resolve(EXIT_DONE);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }
}
