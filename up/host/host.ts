/** A machine on which `otela up` runs scripts: another one by ssh, or this one. */
import type { ChildProcessByStdio } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { RunCommand } from '../../node/command-runner.ts';

export type HostProcess = ChildProcessByStdio<Writable, Readable, Readable>;

export interface Host {
  /** As after `ssh`, or THIS_MACHINE. */
  readonly host: string;
  /** Runs a script in a login shell and returns its output. @throws UpError */
  output(script: string, input?: string): Promise<string>;
  /** For a launcher: runs a program of the batch system there. */
  readonly runner: RunCommand;
  /** Sends a stream to the script's input. @throws UpError */
  send(script: string, stream: Readable): Promise<void>;
  spawn(script: string): HostProcess;
  /** Runs a script and passes its output to the terminal. Resolves with its exit code. */
  show(script: string): Promise<number>;
  /** True if the shared connection of ssh stands. */
  isConnected(): Promise<boolean>;
  close(): Promise<void>;
}

/** The name of this machine as a host. The space distinguishes it from hosts of ssh. */
export const THIS_MACHINE = 'this machine';

/** Maximum size of error output that is kept. */
const ERRORS_MAX_CHARS = 4_096;

/** Keeps the last part of a stream. Returns a function that reads it. */
export function lastChars(stream: Readable): () => string {
  let text = '';
  stream.setEncoding('utf8').on('data', (piece: string) => {
    text = (text + piece).slice(-ERRORS_MAX_CHARS);
  });
  return () => text;
}
