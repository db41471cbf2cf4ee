/**
 * The engine as a child process with its own process group. Its output is passed through, and its end is reported once.
 */
import type { ChildProcess } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { childEnvironment } from '../host/child-environment.ts';
import { spawnSafely } from '../host/spawn-safely.ts';
import { engineDefaults } from './engine-command.ts';
import { LineReader } from './line-reader.ts';
import { LogTailBuffer } from './log-tail-buffer.ts';
import { OrphanGuard } from './orphan-guard.ts';
import { missingCommand, withUsr1Ignored } from './prepare-exec.ts';
import { endGroup } from './process-group.ts';

/** How the engine ended. `error`: it never started, for example because the command does not exist. */
export type EngineExit =
  | { kind: 'code'; code: number }
  | { kind: 'signal'; signal: NodeJS.Signals }
  | { kind: 'error'; message: string };

/**
 * Maximum wait, after the engine's end, for output that is still in the pipe. A process that the engine left may keep
 * the pipe open.
 */
const LAST_OUTPUT_MS = 500;

interface ChildOptions {
  command: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  stdout: Writable;
  stderr: Writable;
  log(line: string): void;
  /** Called with each line of the engine's output, cut at 4 KiB. */
  onLine?(line: string): void;
}

export class EngineProcess {
  readonly tail = new LogTailBuffer();
  /** Resolves once and never rejects. */
  readonly exited: Promise<EngineExit>;
  readonly #child: ChildProcess;
  readonly #guard: OrphanGuard;
  readonly #listeners = new Set<(chunk: Buffer) => void>();

  constructor(options: ChildOptions) {
    this.#guard = new OrphanGuard(options.log);
    const env = { ...engineDefaults(options.command), ...childEnvironment(options.env) };
    // `detached` is setsid(2): only the agent receives a Ctrl-C at the terminal, and can drain first.
    const [file = '', ...args] = withUsr1Ignored(options.command, env);
    this.#child = spawnSafely(file, args, { detached: true, stdio: ['ignore', 'pipe', 'pipe'], env });
    if (this.pid !== undefined) this.#guard.watch(this.pid);
    this.#pass(this.#child.stdout, options.stdout, options.onLine);
    this.#pass(this.#child.stderr, options.stderr, options.onLine);
    this.exited = new Promise((resolve) => {
      this.#child.once('error', (error) => resolve({ kind: 'error', message: error.message }));
      // Check for a missing program here: env(1) would report it by exit code 127, which could also be the engine's
      // exit code.
      const missing = missingCommand(options.command[0] ?? '', env.PATH);
      if (missing) resolve({ kind: 'error', message: missing });
      this.#child.once('exit', (code, signal) => {
        const exit: EngineExit = signal ? { kind: 'signal', signal } : { kind: 'code', code: code ?? 0 };
        const timer = setTimeout(() => resolve(exit), LAST_OUTPUT_MS);
        this.#child.once('close', () => {
          clearTimeout(timer);
          resolve(exit);
        });
      });
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Calls back with all later output of the engine; returns a function that stops this. */
  follow(listener: (chunk: Buffer) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Ends the whole process group: SIGTERM, then SIGKILL after `graceMs`. Also works after the group's first process has
   * ended.
   */
  async stop(graceMs: number, hurry: Promise<unknown>): Promise<void> {
    if (this.pid !== undefined) await endGroup(this.pid, graceMs, hurry);
    this.#guard.dismiss();
    this.#child.stdout?.destroy();
    this.#child.stderr?.destroy();
  }

  /** Passes bytes on unchanged. A slow reader slows the engine's writes. A closed reader does not stop them. */
  #pass(source: Readable | null | undefined, sink: Writable, onLine: (line: string) => void = () => {}): void {
    if (!source) return;
    const lines = new LineReader(onLine);
    let broken = false;
    const onBroken = () => {
      broken = true;
      source.resume();
    };
    sink.on('error', onBroken);
    // The sink outlives the engine. If its error listener stayed, it would keep this engine's pipe in memory.
    source.once('close', () => sink.off('error', onBroken));
    source.on('error', () => {});
    source.on('end', () => lines.end());
    source.on('data', (chunk: Buffer) => {
      this.tail.push(chunk);
      for (const listener of this.#listeners) listener(chunk);
      lines.push(chunk);
      if (broken || sink.write(chunk)) return;
      source.pause();
      sink.once('drain', () => source.resume());
    });
  }
}

/** Text for the log and for `otela-agent status`. */
export function describeExit(exit: EngineExit): string {
  switch (exit.kind) {
    case 'code':
      return `the engine ended with code ${exit.code}`;
    case 'signal':
      return `the engine was ended by ${exit.signal}`;
    case 'error':
      return `the engine could not be started: ${exit.message}`;
  }
}
