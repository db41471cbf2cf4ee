/** Output to a terminal that may stop accepting lines: after Ctrl-S, or over a stalled ssh or `srun --pty`. */
import { Writable } from 'node:stream';

/**
 * Maximum number of bytes that wait for the terminal. Further output is not shown; `LogTailBuffer` keeps the engine's
 * last lines.
 */
const WAITING_MAX_BYTES = 256 * 1024;

/**
 * Returns `stream`, or for a terminal a stream that never blocks its writer. Node writes to terminals synchronously, so
 * while a terminal accepts nothing, the engine's next line would stop every request of this process.
 */
export function neverBlocking(stream: NodeJS.WriteStream): Writable {
  return stream.isTTY ? new TerminalOutput(stream) : stream;
}

class TerminalOutput extends Writable {
  readonly isTTY = true;
  readonly #terminal: NodeJS.WriteStream;
  #lostBytes = 0;

  constructor(terminal: NodeJS.WriteStream) {
    super();
    this.#terminal = terminal;
    unblock(terminal);
    // The terminal was closed.
    terminal.on('error', () => {});
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#show(chunk);
    done();
  }

  #show(chunk: Buffer): void {
    if (this.#terminal.writableLength + chunk.length > WAITING_MAX_BYTES) {
      this.#lostBytes += chunk.length;
      return;
    }
    if (this.#lostBytes > 0) {
      this.#terminal.write(`\n[otela-agent: ${this.#lostBytes} bytes are not shown: the terminal did not read them]\n`);
      this.#lostBytes = 0;
    }
    this.#terminal.write(chunk);
  }
}

/**
 * Makes writes to the terminal non-blocking. Node has no option for this:
 * https://nodejs.org/api/process.html#a-note-on-process-io. If the handle is missing, nothing changes.
 */
function unblock(terminal: object): void {
  const handle = '_handle' in terminal ? terminal._handle : undefined;
  if (typeof handle !== 'object' || handle === null || !('setBlocking' in handle)) return;
  if (typeof handle.setBlocking === 'function') handle.setBlocking(false);
}
