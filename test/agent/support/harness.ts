/** Runs the agent's `main` inside the test, with real engines and a fake tunnel; waits for events, not for time. */
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { type MainOptions, main } from '../../../agent/cli/main.ts';
import type { AdmissionOptions } from '../../../agent/tunnel/gateway-admission.ts';
import type { TerminationSignal } from '../../../shared/lattice/departure-cause.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { patience } from '../../support/patience.ts';
import { fakeAdmission } from './fake-admission.ts';
import { FakeTunnel } from './fake-tunnel.ts';

export const NODE = process.execPath;

/** A repeated signal counts as a second one only after this time. */
export const AGAIN_MS = 300;

/** A directory that is removed after the test. */
export function scratch(): string {
  const directory = mkdtempSync(join(tmpdir(), 'otela-agent-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** An environment like a user's: its own directory for state, and on PATH only the system's tools and this test's. */
export function userEnv(directory: string, more: Record<string, string> = {}): Record<string, string> {
  const bin = join(directory, 'bin');
  mkdirSync(bin, { recursive: true });
  return {
    PATH: `${bin}:${dirname(NODE)}:/usr/bin:/bin`,
    HOME: join(directory, 'home'),
    XDG_RUNTIME_DIR: directory,
    TMPDIR: directory,
    ...more,
  };
}

/** Puts a mock of a program of the host (nvidia-smi, squeue, …) on the PATH of `userEnv(directory)`. */
export function fakeTool(directory: string, name: string, script: string): void {
  const path = join(directory, 'bin', name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n# A stand-in for ${name}, for tests.\n${script}\n`);
  chmodSync(path, 0o755);
}

class Sink extends Writable {
  readonly chunks: Buffer[] = [];
  readonly #wake: () => void;

  constructor(wake: () => void) {
    super();
    this.#wake = wake;
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.chunks.push(Buffer.from(chunk));
    this.#wake();
    done();
  }

  get bytes(): Buffer {
    return Buffer.concat(this.chunks);
  }

  get text(): string {
    return this.bytes.toString('utf8');
  }
}

/** One call of `main`. */
export class Run {
  readonly tunnels: FakeTunnel[] = [];
  /** The agent's requests for admission. */
  readonly admissions: AdmissionOptions[] = [];
  readonly stdout: Sink;
  readonly stderr: Sink;
  readonly exit: Promise<number>;
  readonly #waiting = new Set<() => void>();
  /** Raises an error like an uncaught one. */
  fault: (error: unknown) => void = () => {};
  #onSignal: ((signal: TerminationSignal) => void) | undefined;
  #code: number | undefined;

  constructor(argv: readonly string[], env: Record<string, string>, options: Partial<MainOptions> = {}) {
    const wake = () => {
      for (const look of this.#waiting) look();
    };
    this.stdout = new Sink(wake);
    this.stderr = new Sink(wake);
    this.exit = main(argv, env, {
      stdout: this.stdout,
      stderr: this.stderr,
      openTunnel: (options) => {
        const tunnel = new FakeTunnel(options, wake);
        this.tunnels.push(tunnel);
        return tunnel;
      },
      admit: (asked) => {
        this.admissions.push(asked);
        return fakeAdmission(asked);
      },
      joinMesh: false,
      // The process's handlers belong to the test runner.
      faults: (handler) => {
        this.fault = handler;
        return () => {};
      },
      signals: (handler) => {
        this.#onSignal = handler;
        return () => {
          this.#onSignal = undefined;
        };
      },
      ...options,
    });
    neverRejects(
      this.exit.then((code) => {
        this.#code = code;
        wake();
      }),
    );
  }

  get tunnel(): FakeTunnel {
    const [tunnel] = this.tunnels;
    if (!tunnel) throw new Error(`no tunnel was opened:\n${this.stderr.text}`);
    return tunnel;
  }

  signal(signal: TerminationSignal): void {
    this.#onSignal?.(signal);
  }

  /** Resolves when `condition` holds; it is checked after each output and each publication. */
  until(condition: () => boolean, withinMs = 10_000): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (error?: Error) => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        if (error) reject(error);
        else resolve();
      };
      const look = () => {
        if (condition()) end();
        else if (this.#code !== undefined) end(new Error(`ended with ${this.#code} first:\n${this.stderr.text}`));
      };
      const timer = setTimeout(
        () => end(new Error(`not within ${patience(withinMs)} ms: ${condition}\n${this.stderr.text}`)),
        patience(withinMs),
      );
      this.#waiting.add(look);
      look();
    });
  }

  /** Resolves when the newest record has this state. */
  state(state: string): Promise<void> {
    return this.until(() => this.tunnels[0]?.latest?.state === state);
  }
}

/** Runs a command to its end; only for commands that end without a signal. */
export async function runToEnd(
  argv: readonly string[],
  env: Record<string, string>,
): Promise<{ code: number; out: string; err: string }> {
  const run = new Run(argv, env);
  const code = await run.exit;
  return { code, out: run.stdout.text, err: run.stderr.text };
}

/** `otela-agent start` with one fake gateway; always ended after the test. */
export function startAgent(
  directory: string,
  args: readonly string[],
  more: Record<string, string> = {},
  options: Partial<MainOptions> = {},
): Run {
  const env = userEnv(directory, { OTELA_TOKEN: 'test-token', OTELA_GATEWAY: 'http://127.0.0.1:9', ...more });
  const run = new Run(['start', ...args], env, options);
  onTestFinished(async () => {
    run.signal('SIGINT');
    // An immediate second signal would be taken for the first one, forwarded.
    await Promise.race([run.exit, delay(AGAIN_MS)]);
    run.signal('SIGINT');
    await run.exit;
  });
  return run;
}

/** The mock engine of test/support as a command: an HTTP server without a model. */
export function engineCommand(port: number, ...more: string[]): string[] {
  const path = fileURLToPath(new URL('../../support/engine.ts', import.meta.url));
  return [NODE, path, '--port', String(port), ...more];
}

/** For scripts of engines that run until a signal. */
export const FOR_EVER = 'setInterval(() => {}, 1e6);';

/** Arguments of `start` with an engine that serves nothing and runs the script. */
export const scriptedEngine = (script: string) => ['--engine-port', '9', '--', NODE, '-e', script];

/** False if a process no longer runs; an unreaped zombie counts as ended. */
export function processRuns(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2));
  } catch {
    return false;
  }
}
