import type { Writable } from 'node:stream';

/** Where a command writes: results to `out`, progress to `log`. */
export interface Io {
  out(text: string): void;
  log(line: string): void;
}

export function makeIo(stdout: Writable, stderr: Writable): Io {
  // A reader that has gone (`… | head`) ends nothing.
  for (const stream of [stdout, stderr]) stream.on('error', () => {});
  return { out: (text) => void stdout.write(`${text}\n`), log: (line) => void stderr.write(`${line}\n`) };
}

/** NaN and infinities have no JSON; a missing number is null there. */
export function json(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) => (typeof one === 'number' && !Number.isFinite(one) ? null : one), 2);
}
