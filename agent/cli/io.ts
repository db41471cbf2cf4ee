/** Where a command writes. */
import type { Writable } from 'node:stream';
import { type Paint, painterFor } from '../../shared/terminal/paint.ts';

export interface Io {
  stdout: Writable;
  stderr: Writable;
  /** Colours for stdout, where it is a terminal. */
  paint: Paint;
  /** One line for whoever asked. */
  out(line: string): void;
  /** One line for the operator, with the time: the engine's own lines stand between ours. */
  log(line: string): void;
}

export function makeIo(
  stdout: Writable & { isTTY?: boolean },
  stderr: Writable,
  env: Readonly<Record<string, string | undefined>> = {},
): Io {
  // A reader that has gone (`… | head`) must not end the agent.
  for (const stream of [stdout, stderr]) stream.on('error', () => {});
  return {
    stdout,
    stderr,
    paint: painterFor(stdout, env),
    out: (line) => void stdout.write(`${line}\n`),
    log: (line) => void stderr.write(`otela-agent ${new Date().toISOString().slice(0, 19)}Z ${printable(line)}\n`),
  };
}

/** Resolves when what was written has been taken, or can be taken by nobody any more. */
export function flushed(stream: Writable): Promise<void> {
  return new Promise((resolve) => {
    if (stream.writable) stream.write('', () => resolve());
    else resolve();
  });
}

/** A gateway's or an engine's words must neither drive the operator's terminal nor look like lines of ours. */
function printable(line: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is replaced
  return line.replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ').slice(0, 2000);
}
