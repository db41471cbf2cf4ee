/** The output of a command. */
import type { Writable } from 'node:stream';
import { type Paint, painterFor } from '../../shared/terminal/paint.ts';
import { printable } from '../../shared/terminal/printable.ts';

/** Maximum length of a logged line; longer lines are cut. A gateway or an engine may send text of any length. */
const LINE_MAX_CHARS = 2_000;

export interface AgentIo {
  stdout: Writable;
  stderr: Writable;
  /** Colors for stdout, if it is a terminal. */
  paint: Paint;
  /** Prints a line for the user at the terminal. */
  out(line: string): void;
  /** Prints a line for the operator, with the time, because the engine's output is mixed with it. */
  log(line: string): void;
}

export function makeAgentIo(
  stdout: Writable & { isTTY?: boolean },
  stderr: Writable,
  env: Readonly<Record<string, string | undefined>> = {},
): AgentIo {
  // A reader that closed the pipe (`… | head`) must not end the agent.
  for (const stream of [stdout, stderr]) stream.on('error', () => {});
  return {
    stdout,
    stderr,
    paint: painterFor(stdout, env),
    out: (line) => void stdout.write(`${line}\n`),
    log: (line) =>
      void stderr.write(
        `otela-agent ${new Date().toISOString().slice(0, 19)}Z ${printable(line).slice(0, LINE_MAX_CHARS)}\n`,
      ),
  };
}

/** Resolves when the reader has taken all output, or has closed the pipe. */
export function waitForFlush(stream: Writable): Promise<void> {
  return new Promise((resolve) => {
    if (stream.writable) stream.write('', () => resolve());
    else resolve();
  });
}
