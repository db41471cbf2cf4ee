/** A terminal that may stop taking lines: Ctrl-S, an ssh or `srun --pty` that stands still. */
import { Writable } from 'node:stream';

/** Lines that wait for the terminal. What comes beyond is not shown; the engine's last lines are kept elsewhere (`Tail`). */
const WAITING_MAX_BYTES = 256 * 1024;

/**
 * `stream`, and where it is a terminal one that never makes its writer wait. Node writes to terminals synchronously: while one takes
 * nothing, the engine's next line would stop every request of this process.
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
    // Its reader has gone.
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
      this.#terminal.write(`\n[otela-agent: ${this.#lostBytes} bytes are not shown: the terminal took none]\n`);
      this.#lostBytes = 0;
    }
    this.#terminal.write(chunk);
  }
}

/** Node has no option for it: https://nodejs.org/api/process.html#a-note-on-process-io. As before where the handle is another one. */
function unblock(terminal: object): void {
  const handle = '_handle' in terminal ? terminal._handle : undefined;
  if (typeof handle !== 'object' || handle === null || !('setBlocking' in handle)) return;
  if (typeof handle.setBlocking === 'function') handle.setBlocking(false);
}
