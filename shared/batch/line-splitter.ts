import { concatOrSame } from '../collections/concat.ts';

/** A line of a JSONL file, without its line end. */
export interface SplitLine {
  /** Valid only until the callback returns, because most lines are views of the piece in which they arrived. */
  bytes: Uint8Array;
  /** Offset of the line's start in the file, in bytes. */
  offset: number;
  /** Number of the line from 1, counting blank lines, as an editor shows it. */
  number: number;
}

const LF = 10;
const CR = 13;

/**
 * Splits a file that arrives in pieces into lines. Keeps at most `maxBytes` of an unfinished line. A longer line is
 * reported once through `tooLong`, and its rest is dropped. Blank lines are skipped, and so is a UTF-8 byte order mark
 * at the start of the file.
 */
export class LineSplitter {
  readonly #maxBytes: number;
  readonly #line: (line: SplitLine) => void;
  readonly #tooLong: (number: number) => void;
  #buffered: Uint8Array[] = [];
  #bufferedBytes = 0;
  #dropping = false;
  #number = 1;
  #lineStart = 0;
  #at = 0;

  constructor(maxBytes: number, line: (line: SplitLine) => void, tooLong: (number: number) => void) {
    this.#maxBytes = maxBytes;
    this.#line = line;
    this.#tooLong = tooLong;
  }

  push(piece: Uint8Array): void {
    let from = 0;
    for (;;) {
      const end = piece.indexOf(LF, from);
      if (end === -1) break;
      this.#keep(piece.subarray(from, end));
      this.#finish(this.#at + end + 1);
      from = end + 1;
    }
    this.#keep(piece.subarray(from));
    // Copied, because the caller may reuse its buffer.
    const last = this.#buffered.pop();
    if (last !== undefined) this.#buffered.push(last.slice());
    this.#at += piece.length;
  }

  /** Call when the file is complete. Its last line may have no line end. */
  end(): void {
    if (this.#bufferedBytes > 0 || this.#dropping) this.#finish(this.#at);
  }

  #keep(part: Uint8Array): void {
    if (this.#dropping || part.length === 0) return;
    if (this.#bufferedBytes + part.length > this.#maxBytes) {
      this.#dropping = true;
      this.#buffered = [];
      this.#bufferedBytes = 0;
      this.#tooLong(this.#number);
      return;
    }
    this.#buffered.push(part);
    this.#bufferedBytes += part.length;
  }

  #finish(next: number): void {
    if (!this.#dropping) {
      const { bytes, skipped } = trimmed(concatOrSame(this.#buffered), this.#lineStart === 0);
      if (!isBlank(bytes)) this.#line({ bytes, offset: this.#lineStart + skipped, number: this.#number });
    }
    this.#buffered = [];
    this.#bufferedBytes = 0;
    this.#dropping = false;
    this.#number += 1;
    this.#lineStart = next;
  }
}

function trimmed(bytes: Uint8Array, first: boolean): { bytes: Uint8Array; skipped: number } {
  const end = bytes.at(-1) === CR ? bytes.length - 1 : bytes.length;
  const skipped = first && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  return { bytes: bytes.subarray(skipped, end), skipped };
}

function isBlank(bytes: Uint8Array): boolean {
  for (const byte of bytes) if (byte !== 0x20 && byte !== 0x09) return false;
  return true;
}
