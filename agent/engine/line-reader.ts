/** Splits a stream of bytes into lines, with bounded memory for any output. */

/** Only this many bytes of a longer line are checked. An error line states the error's name in its first bytes. */
export const LOG_LINE_MAX_BYTES = 4096;

const NEWLINE = 10;
/** Carriage return, which ends each state of a progress bar. */
const RETURN = 13;

export class LineReader {
  readonly #onLine: (line: string) => void;
  readonly #buffer = Buffer.alloc(LOG_LINE_MAX_BYTES);
  #length = 0;

  /** `onLine` gets each line that is not empty, without its line break. */
  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(chunk: Buffer): void {
    let start = 0;
    for (let at = nextEnd(chunk, 0); at >= 0; at = nextEnd(chunk, start)) {
      this.#keep(chunk.subarray(start, at));
      this.end();
      start = at + 1;
    }
    this.#keep(chunk.subarray(start));
  }

  /** Ends the stream. The text after the last line break counts as a line. */
  end(): void {
    const length = this.#length;
    this.#length = 0;
    if (length > 0) this.#onLine(this.#buffer.toString('utf8', 0, length));
  }

  #keep(piece: Buffer): void {
    this.#length += piece.copy(this.#buffer, this.#length);
  }
}

function nextEnd(chunk: Buffer, from: number): number {
  const newline = chunk.indexOf(NEWLINE, from);
  const end = newline < 0 ? chunk.length : newline;
  const found = chunk.subarray(from, end).indexOf(RETURN);
  return found < 0 ? newline : from + found;
}
