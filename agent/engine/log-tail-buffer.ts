/** Keeps the last bytes of the engine's output, from which an operator sees why the engine died. */

/** Enough for a Python traceback of every worker of an engine on 8 GPUs. */
const TAIL_MAX_BYTES = 256 * 1024;

export class LogTailBuffer {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #bytes = 0;
  /** True if earlier output was dropped. */
  #cut = false;

  constructor(maxBytes = TAIL_MAX_BYTES) {
    this.#maxBytes = maxBytes;
  }

  push(chunk: Buffer): void {
    this.#cut ||= chunk.length > this.#maxBytes;
    // Copy the bytes: a slice of the pipe's read buffer would keep the whole buffer of 64 KiB in memory.
    this.#chunks.push(Buffer.from(chunk.subarray(-this.#maxBytes)));
    this.#bytes += Math.min(chunk.length, this.#maxBytes);
    // Compact only at twice TAIL_MAX_BYTES. So an engine with much output causes one copy per TAIL_MAX_BYTES of output,
    // and not one copy per line.
    if (this.#bytes > 2 * this.#maxBytes || this.#chunks.length > 1024) this.#compact();
  }

  bytes(): Buffer {
    this.#compact();
    return this.#chunks[0] ?? Buffer.alloc(0);
  }

  /** The last `count` lines as plain text: without colors, and with only the last state of a progress bar. */
  lines(count: number): string[] {
    return this.bytes()
      .subarray(-64 * 1024)
      .toString('utf8')
      .split('\n')
      .map(plainLine)
      .filter((line) => line !== '')
      .slice(-count);
  }

  /**
   * At most the last `maxBytes`, in whole lines with their indentation. A line without its beginning is dropped: it may
   * contain the end of a secret, which could not be recognized as one. A line longer than `maxBytes` begins at its
   * second word.
   */
  text(maxBytes: number): string {
    const bytes = this.bytes();
    const last = bytes.subarray(-maxBytes).toString('utf8');
    const whole = this.#cut || bytes.length > maxBytes ? withoutFirst(last) : last;
    const text = whole.split('\n').map(printable).join('\n');
    // A character that was cut at the beginning is decoded to U+FFFD, which is longer than the remaining bytes. So the
    // text is cut again.
    return text.slice(-maxBytes);
  }

  #compact(): void {
    const joined = Buffer.concat(this.#chunks);
    const all = joined.subarray(-this.#maxBytes);
    this.#cut ||= joined.length > all.length;
    this.#chunks = [all];
    this.#bytes = all.length;
  }
}

function withoutFirst(text: string): string {
  const end = text.indexOf('\n');
  return text.slice((end === -1 ? text.search(/[\s"',;]/) : end) + 1);
}

/** Maximum length of a line that the agent repeats in a message. */
const LINE_MAX_CHARS = 300;

function plainLine(line: string): string {
  return printable(line).trim().slice(0, LINE_MAX_CHARS);
}

/** Removes colors and control characters, and keeps only the last state of a progress bar. */
function printable(line: string): string {
  const shown = line.replace(/\r+$/, '').split('\r').at(-1) ?? '';
  return (
    shown
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are removed
      .replace(/\u001b\[[0-9;?]*[ -/]*[@-~]/g, '')
      // biome-ignore lint/suspicious/noControlCharactersInRegex: an engine must not drive the operator's terminal through us
      .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '')
  );
}
