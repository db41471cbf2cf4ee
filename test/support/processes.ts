/**
 * Starts real processes for tests and ends all of them in every case, by two means. Each process leads a process group.
 * Each also has a mark in its environment, by which children outside the group are found: an engine that outlives a
 * killed agent, or a Slurm job.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { patience, pauses, promise } from './patience.ts';
import { commandOf, descendants, processIds } from './process-table.ts';
import './slowness.ts';
import { ROOT } from './where.ts';

/** Output that is kept of each process: enough to see why it failed. */
const OUTPUT_BYTES = 64 * 1024;
/** The part of the output that a failed test shows. */
const TOLD_BYTES = 3_000;
/**
 * A connection never loses credit. A program that detects a loss prints this line, and then `endAll` rejects: an
 * assertion of every test and soak that starts programs.
 */
export const LOST_CREDIT = /^.*credit of -?\d+ bytes was lost.*$/m;
const LINE_BYTES = 300;
/** Maximum time from TERM to the end of a process, on a quiet machine. */
const STOPS_MS = 5_000;
/** At the end of a test file, remaining processes get this long to clean up; no test checks how they end. */
const GRACE_MS = 4_000;
export const MARK = 'PROOF_RUN';
/**
 * `test/run.ts` names the run, so that it can end processes of a dead worker; each process that imports this adds its
 * own name.
 */
const OWN = `${process.env[MARK] ?? 'run'}/${process.pid}-${randomBytes(6).toString('hex')}`;

export interface SpawnOptions {
  /** Added to a small environment: PATH, HOME, TMPDIR, the mark. */
  env?: Record<string, string>;
  cwd?: string;
  /** Title of the process's output in the message of a failed test. */
  label?: string;
  uid?: number;
  gid?: number;
  /** `pipe`: `child.stdin` is writable. Default: no input. */
  stdin?: 'pipe';
}

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** A child process. Its output is kept, up to a bound. */
export class Managed {
  readonly label: string;
  readonly child: ChildProcess;
  readonly exited: Promise<Exit>;
  #output = '';
  #exit: Exit | undefined;
  readonly #watchers = new Set<() => void>();

  constructor(command: string[], options: SpawnOptions = {}) {
    const [file = '', ...args] = command;
    this.label = options.label ?? file;
    this.child = spawn(file, args, {
      cwd: options.cwd,
      detached: true,
      env: { ...baseEnvironment(), ...options.env, [MARK]: OWN },
      stdio: [options.stdin ?? 'ignore', 'pipe', 'pipe'],
      ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.gid ?? options.uid }),
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.setEncoding('utf8').on('data', (piece: string) => {
        this.#output = (this.#output + piece).slice(-OUTPUT_BYTES);
        const lost = LOST_CREDIT.exec(this.#output.slice(-piece.length - LINE_BYTES));
        if (lost !== null) lostCredit.add(`${this.label}: ${lost[0]}`);
        this.#wake();
      });
    }
    this.exited = new Promise((resolve) => {
      const end = (exit: Exit) => {
        this.#exit = exit;
        this.#wake();
        resolve(exit);
      };
      this.child.once('error', (error) => {
        this.#output += `${error.message}\n`;
        end({ code: 127, signal: null });
      });
      this.child.once('exit', (code, signal) => end({ code, signal }));
    });
    live.add(this);
  }

  get pid(): number {
    return this.child.pid ?? -1;
  }

  get output(): string {
    return this.#output;
  }

  /** The end of the output, for messages. */
  get tail(): string {
    return this.#output.slice(-TOLD_BYTES);
  }

  get running(): boolean {
    return this.#exit === undefined;
  }

  #wake(): void {
    for (const watcher of this.#watchers) watcher();
  }

  /**
   * The first match of `pattern` in the output; rejects with the output if the process ends first or hangs: see
   * `patience`.
   */
  line(pattern: RegExp, withinMs: number): Promise<RegExpExecArray> {
    return new Promise((resolve, reject) => {
      const settle = (done: () => void) => {
        clearTimeout(timer);
        this.#watchers.delete(look);
        done();
      };
      const look = () => {
        const match = pattern.exec(this.#output);
        if (match !== null) settle(() => resolve(match));
        else if (!this.running)
          settle(() => reject(this.failure(`ended (${JSON.stringify(this.#exit)}) before ${pattern}`)));
      };
      const timer = setTimeout(
        () => settle(() => reject(this.failure(`no ${pattern} within ${patience(withinMs)} ms`))),
        patience(withinMs),
      );
      this.#watchers.add(look);
      look();
    });
  }

  /** Waits for the end of the process, which takes at most `withinMs` on a quiet machine. */
  end(withinMs: number): Promise<Exit> {
    return this.#endWithin(patience(withinMs));
  }

  async #endWithin(withinMs: number): Promise<Exit> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(this.failure(`still runs after ${withinMs} ms`)), withinMs);
    });
    return Promise.race([this.exited, late]).finally(() => clearTimeout(timer));
  }

  failure(what: string): Error {
    return new Error(`${this.label} (pid ${this.pid}) ${what}\n--- its output ends:\n${this.tail}\n---`);
  }

  /** Signals only the process, or its whole process group with `group`. */
  signal(signal: NodeJS.Signals, to: 'process' | 'group' = 'process'): void {
    if (this.child.pid !== undefined) tryKill(to === 'group' ? -this.child.pid : this.child.pid, signal);
  }

  /**
   * Sends TERM and waits for the end; rejects if the process continues, because a KILL would make a test of stopping
   * pass. Idempotent.
   */
  async stop(): Promise<void> {
    await this.#close(patience(STOPS_MS), true);
  }

  /**
   * Ends the process at the end of a test file: like `stop`, but after a short grace period it sends KILL. Idempotent.
   */
  async dispose(graceMs = GRACE_MS): Promise<void> {
    await this.#close(promise(graceMs), false);
  }

  async #close(graceMs: number, mustEnd: boolean): Promise<void> {
    const family = [this.pid, ...descendants(this.pid)];
    let killed = false;
    if (this.running) {
      this.signal('SIGTERM');
      killed = await this.#endWithin(graceMs).then(
        () => false,
        () => true,
      );
    }
    this.signal('SIGKILL', 'group');
    for (const pid of family) if (hasMark(pid)) tryKill(pid, 'SIGKILL');
    if (this.running) await this.#endWithin(patience()).catch(() => undefined);
    live.delete(this);
    if (killed && mustEnd) throw this.failure(`did not end within ${graceMs} ms of SIGTERM, and was killed`);
  }
}

const live = new Set<Managed>();
const lostCredit = new Set<string>();
const cleanups: (() => Promise<void> | void)[] = [];

function baseEnvironment(): Record<string, string> {
  const kept = ['PATH', 'HOME', 'TMPDIR', 'LANG', 'USER', 'SLURM_CONF', 'NODE_COMPILE_CACHE'];
  return Object.fromEntries(
    kept.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name] ?? '']])),
  );
}

function tryKill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // The process has already ended.
  }
}

/** Runs `undo` at teardown, newest first. */
export function atEnd(undo: () => Promise<void> | void): void {
  cleanups.push(undo);
}

/**
 * Ends everything that was started through this module; for `afterAll` and `afterEach`. Rejects if a program lost
 * credit.
 */
export async function endAll(): Promise<void> {
  await endAllWithin();
}

/** Like `endAll`, for programs that may take up to `graceMs` to end. Not for hooks: vitest reads a parameter there. */
export async function endAllWithin(graceMs = GRACE_MS): Promise<void> {
  for (const undo of cleanups.splice(0).reverse()) await undo();
  await Promise.all([...live].map((managed) => managed.dispose(graceMs)));
  const lost = [...lostCredit];
  lostCredit.clear();
  if (lost.length > 0) throw new Error(lost.join('\n'));
}

/** Output of all processes that have not been stopped by this module yet, for the message of a failed test. */
function outputs(): string {
  return [...live].map((managed) => `--- ${managed.label} (pid ${managed.pid}):\n${managed.tail}`).join('\n');
}

process.once('exit', () => {
  for (const managed of live) managed.signal('SIGKILL', 'group');
  for (const pid of processIds()) if (hasMark(pid)) tryKill(pid, 'SIGKILL');
});

/**
 * Ends the processes that the workers of a run left behind and lists them. Linux only; other systems rely on the
 * process groups.
 */
export function sweep(run: string): string[] {
  const left = processIds().filter((pid) => hasMark(pid, `${MARK}=${run}/`));
  const told = left.map((pid) => `${pid} ${commandOf(pid)}`);
  for (const pid of left) tryKill(pid, 'SIGKILL');
  return told;
}

function hasMark(pid: number, mark = `${MARK}=${OWN}\0`): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(mark);
  } catch {
    return false;
  }
}

/** A directory that is removed at teardown. */
export async function temporaryDirectory(name = 'otela-test'): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), `${name}-`));
  atEnd(() => rm(path, { recursive: true, force: true, maxRetries: 5 })); // a runtime that is ending may still write
  return path;
}

/**
 * Ports below the range of outgoing connections, which could take a port before its program listens. `fetch` blocks
 * none of these ports.
 */
const PORTS = [20_000, 32_000] as const;

/**
 * A file in this folder reserves the port in its name. Otherwise concurrent runs could use a port twice, because its
 * program needs seconds until it listens.
 */
const RESERVED = join(ROOT, 'node_modules/.cache/test-ports');
const RESERVED_MS = 10 * 60_000;

/** A port that was free a moment ago, and that no other test gets for ten minutes. */
export const freePort = (host?: string): Promise<number> => freePorts(1, host);

/** The first of `count` adjacent ports, each as `freePort` promises. */
export async function freePorts(count: number, host = '127.0.0.1'): Promise<number> {
  const [least, most] = PORTS;
  const first = randomInt(least, most - count);
  for (let port = first; port < first + count; port++)
    if (!(reserve(port) && (await isFree(port, host)))) return freePorts(count, host);
  return first;
}

async function isFree(port: number, host: string): Promise<boolean> {
  const server = createServer().listen(port, host);
  const isTaken = await once(server, 'listening').then(
    () => false,
    (error: NodeJS.ErrnoException) => error.code === 'EADDRINUSE' || Promise.reject(error),
  );
  if (isTaken) return false;
  server.close();
  await once(server, 'close');
  return true;
}

function reserve(port: number): boolean {
  const name = join(RESERVED, String(port));
  mkdirSync(RESERVED, { recursive: true });
  const since = statSync(name, { throwIfNoEntry: false })?.mtimeMs ?? Number.NEGATIVE_INFINITY;
  if (Date.now() - since < RESERVED_MS) return false;
  rmSync(name, { force: true });
  try {
    closeSync(openSync(name, 'wx'));
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  }
}

/** How long a probe may continue when its time is over. A request that got lost must not let a test wait for minutes. */
const PROBE_MS = 30_000;

/** Returns the result of `probe`. @throws Error if it has none at `endAt`, ms since the epoch */
async function settledBy<T>(endAt: number, probe: () => T): Promise<Awaited<T>> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error('the probe did not end')), endAt - Date.now());
  try {
    return await Promise.race([probe(), promise]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Polls at growing intervals until `probe` returns a value; rejects if it hangs: see `patience`. The last error is the
 * cause of the rejection.
 */
export async function eventually<T>(
  what: string,
  withinMs: number,
  probe: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  const deadline = Date.now() + patience(withinMs);
  let cause: unknown;
  for (const pauseMs of pauses()) {
    try {
      const value = await settledBy(deadline + patience(PROBE_MS), probe);
      if (value !== undefined) return value;
    } catch (error) {
      cause = error;
    }
    if (Date.now() > deadline) break;
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  throw new Error(`${what}: not within ${patience(withinMs)} ms\n${outputs()}`, { cause });
}
