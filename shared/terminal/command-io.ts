import { printable } from './printable.ts';

/** Where a command writes: results to `out`, progress to `log`. */
export interface Io {
  out(text: string): void;
  log(line: string): void;
}

/** The part of a process's output stream that this module uses. */
interface Output {
  write(text: string): unknown;
  on(event: 'error', call: () => void): unknown;
}

export function makeIo(stdout: Output, stderr: Output): Io {
  // It is not an error if the reader closes its end of the pipe (`… | head`).
  for (const stream of [stdout, stderr]) stream.on('error', () => {});
  const lines = (text: string) => `${text.split('\n').map(printable).join('\n')}\n`;
  return { out: (text) => void stdout.write(lines(text)), log: (text) => void stderr.write(lines(text)) };
}
