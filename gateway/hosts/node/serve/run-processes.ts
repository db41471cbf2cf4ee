/**
 * `serve --processes N`: N processes of the gateway that accept connections on one port. A process that ends is started
 * again. They are equal: this process only starts them and passes signals on.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm, symlink } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { createPrivateFile } from '../../../../node/private-file.ts';
import { EXIT_DONE, UsageError } from '../../../../shared/command-line/index.ts';
import { backoffMs } from '../../../../shared/timing/backoff.ts';
import { CommandError } from '../../../command-error.ts';
import { makeDirectory } from '../data/make-directory.ts';
import { REUSE_PORT } from './process-count.ts';
import type { ServeOptions } from './serve.ts';

const KEY_BYTES = 32;
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

/** Resolves to the exit status when all processes have ended. @throws CommandError, UsageError */
export async function runProcesses({ count, options, flags, onReady, log }: ProcessesOptions): Promise<number> {
  const { data, database, port, cluster } = options;
  if (database === undefined) throw new UsageError('--processes needs --database: the processes share it');
  if (port === 0) throw new UsageError('--processes needs a --port other than 0: the processes share it');
  await makeDirectory(data);
  if (existsSync(join(data, 'layout.json')))
    throw new CommandError(`${data} has the data of one process. Give --data another directory.`);
  const key = cluster?.keyFile ?? join(data, 'cluster.key');
  if (!existsSync(key)) createPrivateFile(key, `${randomBytes(KEY_BYTES).toString('hex')}\n`);
  const argsOf = (number: number) => [
    ...flags,
    ...['--data', join(data, `process-${number}`)],
    ...['--files', options.files ?? join(resolve(data), 'files')],
    ...['--cluster-key', key],
    ...['--cluster-address', addressOf(cluster, number)],
  ];
  const running = new Set<RestartedProcess>();
  const stop = (signal: NodeJS.Signals) => {
    for (const one of running) one.stop(signal);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(signal));
  process.on('SIGHUP', () => {
    for (const one of running) one.signal('SIGHUP');
  });
  const start = (number: number) => {
    const one = new RestartedProcess(argsOf(number), (line) => log(`process ${number}: ${line}`));
    running.add(one);
    return one;
  };
  // The first process creates the tables and the installation's keys.
  const first = start(1);
  const url = await first.ready;
  if (url === undefined) return first.ended;
  await linkAdminKey(data);
  const all = [first, ...Array.from({ length: count - 1 }, (_, n) => start(n + 2))];
  await Promise.all(all.map(({ ready }) => ready));
  onReady(url);
  await Promise.all(all.map(({ ended }) => ended));
  return EXIT_DONE;
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
  readonly #log: (line: string) => void;
  readonly #ready = Promise.withResolvers<string | undefined>();
  readonly #ended = Promise.withResolvers<number>();
  #child: ChildProcess;
  #restart: NodeJS.Timeout | undefined;
  #failures = 0;
  #wasReady = false;
  #isStopping = false;

  constructor(args: readonly string[], log: (line: string) => void) {
    this.#args = args;
    this.#log = log;
    this.ready = this.#ready.promise;
    this.ended = this.#ended.promise;
    this.#child = this.#spawn();
  }

  #spawn(): ChildProcess {
    const [, main = ''] = process.argv;
    const child = spawn(process.execPath, [...process.execArgv, main, 'serve', ...this.#args], {
      stdio: ['pipe', 'pipe', 'inherit'], // the process stops when its input ends, because this process was killed
      env: { ...process.env, [REUSE_PORT]: 'on' },
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
