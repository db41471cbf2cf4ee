import type { Writable } from 'node:stream';

/** Where a command writes: results to `out`, progress to `log`. */
export interface Io {
  out(text: string): void;
  log(line: string): void;
}

export function makeIo(stdout: Writable, stderr: Writable): Io {
  // A reader that has gone (`… | head`) ends nothing.
  for (const stream of [stdout, stderr]) stream.on('error', () => {});
  return {
    out: (text) => void stdout.write(`${printable(text)}\n`),
    log: (line) => void stderr.write(`${printable(line)}\n`),
  };
}

/** Names from the network must not drive the operator's terminal. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is replaced
  return text.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}

/** NaN and infinities have no JSON; a missing number is null there. */
export function json(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) => (typeof one === 'number' && !Number.isFinite(one) ? null : one), 2);
}
