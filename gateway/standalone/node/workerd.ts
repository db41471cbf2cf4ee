/** Starts workerd, keeps it running, and never leaves one behind. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';

/** workerd starts in about 0.3 s here; a cold disk takes longer. */
const LISTEN_MS = 20_000;
const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 5_000;
/** Alive for so long: the next failure is a new one. */
const STEADY_MS = 30_000;
/** SIGTERM makes workerd wait for every open socket, hibernated ones too, for ever. What is stored is safe without it. */
const TERM_GRACE_MS = 500;
const STALE_MS = 5_000;
/** Kept of its output, to say why it did not start. */
const TAIL_LINES = 20;

interface WorkerdOptions {
  config: string;
  /** Where the config makes it listen; removed before each start, because a socket file outlives its process. */
  socket: string;
  pidFile: string;
  env: Record<string, string | undefined>;
  log(line: string): void;
}

export class Workerd {
  readonly #options: WorkerdOptions;
  #child: ChildProcess | undefined;
  #stopped = false;
  #backoffMs = BACKOFF_MIN_MS;

  constructor(options: WorkerdOptions) {
    this.#options = options;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Resolves when it listens. From then on it is started again whenever it ends. Rejects with its words if it does not start. */
  async start(): Promise<void> {
    await killStale(this.#options.pidFile, this.#options.config);
    await this.#launch();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    const child = this.#child;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), TERM_GRACE_MS);
      await exited;
      clearTimeout(timer);
    }
    await rm(this.#options.pidFile, { force: true });
  }

  async #launch(): Promise<void> {
    const { config, socket, pidFile, env, log } = this.#options;
    await rm(socket, { force: true });
    const [file, ...args] = [...diesWithParent(), workerdBinary(), 'serve', config, '--control-fd', '3'];
    const child = spawn(file, args, { env, stdio: ['ignore', 'pipe', 'pipe', 'pipe'] });
    this.#child = child;
    const tail: string[] = [];
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        log(line);
        tail.push(line);
        if (tail.length > TAIL_LINES) tail.shift();
      });
    }
    // A process that cannot even be started says so with `error`, and then there is no `exit`.
    const ended = new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(error.message));
      child.once('close', (code, signal) => resolve(signal ?? `exit code ${code}`));
    });
    if (child.pid !== undefined) await writeFile(pidFile, `${child.pid}\n`);
    const startedAt = Date.now();
    const failed = ended.then((how) => Promise.reject(new Error(`workerd ended: ${how}\n${tail.join('\n')}`)));
    try {
      await Promise.race([listening(child), failed]);
    } catch (error) {
      child.kill('SIGKILL');
      throw error;
    }
    void ended.then((how) => this.#again(how, startedAt));
    failed.catch(() => {});
  }

  async #again(how: string, startedAt: number): Promise<void> {
    if (Date.now() - startedAt > STEADY_MS) this.#backoffMs = BACKOFF_MIN_MS;
    while (!this.#stopped) {
      this.#options.log(`workerd ended (${how}); starting it again in ${this.#backoffMs} ms`);
      await delay(this.#backoffMs);
      this.#backoffMs = Math.min(this.#backoffMs * 2, BACKOFF_MAX_MS);
      if (this.#stopped) return;
      try {
        await this.#launch();
        // stop() may have run while it came up.
        if (this.#stopped) this.#child?.kill('SIGKILL');
        return;
      } catch (error) {
        how = error instanceof Error ? error.message : String(error);
      }
    }
  }
}

/** workerd says on descriptor 3 when it has bound its socket. */
async function listening(child: ChildProcess): Promise<void> {
  const control = child.stdio[3];
  if (control === null || control === undefined || !('on' in control)) throw new Error('workerd has no control pipe');
  const signal = AbortSignal.timeout(LISTEN_MS);
  try {
    await once(control, 'data', { signal });
  } catch (cause) {
    throw new Error(`workerd does not listen after ${LISTEN_MS} ms`, { cause });
  }
}

/** The binary of this machine's platform, as the npm package `workerd` finds it. It comes without types. @throws where there is none */
export function workerdBinary(): string {
  const found: unknown = createRequire(import.meta.url)('workerd');
  return z.object({ default: z.string() }).parse(found).default;
}

let launcher: string[] | undefined;

/** The command that lets the kernel end workerd with us, where util-linux offers it: `kill -9` runs no handler of ours. */
function diesWithParent(): string[] {
  const setpriv = ['setpriv', '--pdeathsig', 'KILL'];
  launcher ??= spawnSync('setpriv', ['--pdeathsig', 'KILL', 'true'], { stdio: 'ignore' }).status === 0 ? setpriv : [];
  return launcher;
}

/**
 * Ends a workerd that outlived a gateway which was killed: two writers on one directory corrupt it. Process ids are used again,
 * so only a process that was started with this very config file is touched.
 */
async function killStale(pidFile: string, config: string): Promise<void> {
  const pid = Number(await readFile(pidFile, 'utf8').catch(() => ''));
  if (!Number.isSafeInteger(pid) || pid <= 1) return;
  const deadline = Date.now() + STALE_MS;
  while (await isOurs(pid, config)) {
    if (Date.now() > deadline) throw new Error(`process ${pid}, left by an earlier gateway on this data, does not end`);
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // Gone between the look and the signal.
    }
    await delay(20);
  }
}

async function isOurs(pid: number, config: string): Promise<boolean> {
  // A process that is gone, or is a zombie, has no command line.
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  const words = command.split('\0');
  return words.includes('serve') && words.includes(config);
}
