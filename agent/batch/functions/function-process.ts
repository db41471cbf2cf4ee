/**
 * One loaded function: a child process that answers one call at a time. It has its own process group, directory and
 * pipes.
 */

import type { ChildProcess } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { WHY_MAX } from '../../../shared/batch/function-context.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { LogTailBuffer } from '../../engine/log-tail-buffer.ts';
import { OrphanGuard } from '../../engine/orphan-guard.ts';
import { endGroup } from '../../engine/process-group.ts';
import { spawnSafely } from '../../host/spawn-safely.ts';
import { makeFunctionDirectory, removeFunctionDirectory } from './function-directory.ts';
import { functionEnvironment } from './function-environment.ts';
import { type FunctionFrame, FunctionFrameReader } from './function-frames.ts';
import { groupMemoryBytes } from './group-memory.ts';
import { type CallFile, OutputFolder } from './output-folder.ts';
import { HARNESS } from './python-harness.ts';
import type { CopyFile, StagedFiles } from './staged-files.ts';

export interface FunctionLimits {
  /** Path of the Python interpreter. */
  python: string;
  loadMs: number;
  /** Maximum duration of one call, in milliseconds. */
  callMs: number;
  /** Maximum resident memory of the whole process group. */
  memoryBytes: number;
}

interface ProcessOptions {
  limits: FunctionLimits;
  /** The agent's environment. The process gets only the variables that Python, CUDA and caches need. */
  env: Readonly<Record<string, string | undefined>>;
  /** Directory of temporary files. The process gets its own directory in it, with mode 0700. */
  temporary: string;
  code: string;
  name: string | undefined;
  /** Files that its calls read. Absent: calls have none. They are deleted with the process. */
  files?: StagedFiles;
  /** Variables of the function's owner. Only this process gets them. */
  secrets?: Readonly<Record<string, string>>;
  /** Directory of the packages that the function declares. */
  packages?: string | undefined;
  /** Returns the command that runs this command in a sandbox. Absent: it runs with all rights of the agent's user. */
  wrap?(command: readonly string[], directory: string): string[];
  /** Called when no process of the function is left. */
  onEnd?(): void;
  log(line: string): void;
}

type CallAnswer =
  /**
   * `failed`: why lines of a call with other good lines raised an exception, by their index in the call. `files`: what
   * the calls wrote, by the same index; absent: nothing.
   */
  | {
      kind: 'outputs';
      outputs: string[];
      failed: ReadonlyMap<number, string>;
      files?: ReadonlyMap<number, readonly CallFile[]>;
    }
  /** The function raised an exception, or returned too many or too few outputs. The process can run further calls. */
  | { kind: 'raised'; error: string }
  /** The process ended, sent an invalid frame, or was ended because of its time or memory. */
  | { kind: 'broken'; why: string };

/** Bytes of the process's last output that are kept for error messages. */
const TAIL_BYTES = 16 * 1024;
const SHOWN_CHARS = 400;
/** Bytes of output that the owner can read of each call. */
const OUTPUT_BYTES = 4_096;
/** Interval at which the process's memory is checked. */
const MEMORY_POLL_MS = 1_000;
/** Time from SIGTERM to SIGKILL. It is short, because the process has nothing to save. */
const GRACE_MS = 1_000;

export class FunctionProcess {
  /** The files that its calls wrote and returned. */
  readonly outputs: OutputFolder;
  readonly #options: ProcessOptions;
  readonly #directory: string;
  readonly #child: ChildProcess;
  readonly #guard: OrphanGuard;
  readonly #tail = new LogTailBuffer(TAIL_BYTES);
  /** The output since the last `takeOutput`. */
  #output = new LogTailBuffer(OUTPUT_BYTES);
  readonly #pollTimer: NodeJS.Timeout;
  #broken: string | undefined;
  #next = 1;
  #waits: ((frame: FunctionFrame | undefined) => void) | undefined;
  #gone: Promise<void> | undefined;

  /** Starts the process. `load` reports whether it is ready. @throws Error if its directory cannot be written */
  constructor(options: ProcessOptions) {
    this.#options = options;
    const { limits, env, temporary, code, name, log } = options;
    this.#directory = makeFunctionDirectory(temporary);
    let command = [limits.python, 'harness.py', ...(name === undefined ? [] : [name])];
    try {
      writeFileSync(join(this.#directory, 'function.py'), code, { mode: 0o600 });
      writeFileSync(join(this.#directory, 'harness.py'), HARNESS, { mode: 0o600 });
      this.outputs = new OutputFolder(this.#directory);
      command = options.wrap?.(command, this.#directory) ?? command;
    } catch (error) {
      // The disk may be full, and each attempt would leave a directory.
      removeFunctionDirectory(this.#directory);
      throw error;
    }
    this.#guard = new OrphanGuard(log);
    const [file = '', ...args] = command;
    this.#child = spawnSafely(file, args, {
      cwd: this.#directory,
      env: {
        ...options.secrets,
        ...functionEnvironment(env, this.#directory, options.packages),
        ...(options.files && { OTELA_FILES: options.files.directory }),
      },
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'pipe'],
    });
    if (this.#child.pid !== undefined) this.#guard.watch(this.#child.pid);
    this.#child.once('error', (error) => this.#break(`it could not be started: ${error.message}`));
    this.#child.once('exit', (exitCode, signal) =>
      this.#break(signal === null ? `it exited with code ${exitCode}` : `it was ended by ${signal}`),
    );
    for (const output of [this.#child.stdout, this.#child.stderr]) {
      output?.on('data', (chunk: Buffer) => {
        this.#tail.push(chunk);
        this.#output.push(chunk);
      });
      output?.on('error', () => {});
    }
    this.#asks?.on('error', () => {});
    const reader = new FunctionFrameReader(
      (frame) => this.#take(frame),
      (why) => this.#break(`it sent ${why}`),
    );
    this.#answers?.on('data', (chunk: Buffer) => reader.push(chunk));
    this.#answers?.on('error', () => {});
    this.#pollTimer = setInterval(() => this.#watchMemory(), MEMORY_POLL_MS);
  }

  /** The pipe for calls. Undefined if the process could not be started. */
  get #asks(): Writable | undefined {
    return this.#child.stdio?.[3] as Writable | undefined;
  }

  get #answers(): Readable | undefined {
    return this.#child.stdio?.[4] as Readable | undefined;
  }

  /** Why the process can no longer answer; undefined if it can. */
  get broken(): string | undefined {
    return this.#broken;
  }

  /** Call once, before the first `call`. @returns why the function could not be loaded, or undefined */
  async load(): Promise<string | undefined> {
    const { loadMs } = this.#options.limits;
    const frame = await this.#answer(loadMs, 'load()');
    if (frame === undefined) return this.#shown(this.#broken ?? 'it ended');
    if (!('loaded' in frame)) return this.#break('it sent a response before it was loaded');
    return frame.loaded ? undefined : (frame.error ?? 'load() failed').slice(0, WHY_MAX);
  }

  /** Runs one call; calls must not overlap. @param lines inputs of `infer`, as JSON */
  async call(lines: readonly string[]): Promise<CallAnswer> {
    const id = this.#next++;
    if (this.#broken === undefined) this.#asks?.write(`{"id":${id},"lines":[${lines.join(',')}]}\n`);
    const frame = await this.#answer(this.#options.limits.callMs, 'infer()');
    if (frame === undefined) return { kind: 'broken', why: this.#shown(this.#broken ?? 'it ended') };
    if ('loaded' in frame || frame.id !== id)
      return { kind: 'broken', why: this.#break('it sent a response to a different call') };
    if ('error' in frame) return { kind: 'raised', error: frame.error.slice(0, WHY_MAX) };
    if (frame.outputs.length === lines.length) {
      const files = new Map(Object.entries(frame.files).map(([index, some]) => [Number(index), some]));
      const { outputs } = frame;
      return { kind: 'outputs', outputs, failed: failuresOf(frame.failed), ...(files.size > 0 && { files }) };
    }
    return { kind: 'broken', why: this.#break(`it answered ${frame.outputs.length} of ${lines.length} lines`) };
  }

  /** Copies files that the next call reads. @throws Error of `copy` */
  async stage(ids: readonly string[], copy: CopyFile): Promise<void> {
    if (ids.length > 0) await this.#options.files?.stage(ids, copy);
  }

  /** Returns the end of the output since the last call of this method. */
  takeOutput(): string {
    const text = this.#output.text(OUTPUT_BYTES).trimEnd();
    this.#output = new LogTailBuffer(OUTPUT_BYTES);
    return text;
  }

  /** Ends the process group and removes its directory. Never rejects. */
  stop(): Promise<void> {
    this.#break('it was stopped');
    this.#gone ??= this.#end();
    return this.#gone;
  }

  async #end(): Promise<void> {
    const { pid } = this.#child;
    if (pid !== undefined) await endGroup(pid, GRACE_MS, Promise.resolve());
    this.#guard.dismiss();
    this.#options.onEnd?.();
    for (const stream of this.#child.stdio ?? []) stream?.destroy();
    await this.outputs.close();
    const why = removeFunctionDirectory(this.#directory) ?? this.#options.files?.remove();
    if (why !== undefined) this.#options.log(`the directory of a function could not be deleted: ${why}`);
  }

  #answer(limitMs: number, what: string): Promise<FunctionFrame | undefined> {
    if (this.#broken !== undefined) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#break(`${what} took more than ${limitMs / 1_000} s`), limitMs);
      this.#waits = (frame) => {
        clearTimeout(timer);
        this.#waits = undefined;
        resolve(frame);
      };
    });
  }

  #take(frame: FunctionFrame): void {
    // A process that the function left running may write to the pipe between calls.
    if (this.#waits === undefined) this.#break('it sent a response without a call');
    else this.#waits(frame);
  }

  /** Kills the whole process group. No output of it is accepted afterwards. */
  #break(why: string): string {
    if (this.#broken !== undefined) return this.#broken;
    this.#broken = why;
    clearInterval(this.#pollTimer);
    this.#waits?.(undefined);
    neverRejects(this.stop());
    return why;
  }

  #shown(why: string): string {
    const logTail = this.#tail.lines(4).join(' | ').slice(-SHOWN_CHARS);
    return `The function's process: ${why}.${logTail === '' ? '' : ` Its last output: ${logTail}`}`.slice(0, WHY_MAX);
  }

  #watchMemory(): void {
    const { pid } = this.#child;
    const { memoryBytes } = this.#options.limits;
    const used = pid === undefined ? 0 : groupMemoryBytes(pid);
    if (used > memoryBytes)
      this.#break(
        `it used ${Math.ceil(used / 2 ** 20)} MiB of memory; the limit is ${Math.floor(memoryBytes / 2 ** 20)} MiB`,
      );
  }
}

function failuresOf(failed: Readonly<Record<string, string>>): Map<number, string> {
  return new Map(Object.entries(failed).map(([index, why]) => [Number(index), why.slice(0, WHY_MAX)]));
}
