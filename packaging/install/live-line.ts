/** What a program does while it keeps its user waiting, as one line: rewritten each second on a terminal, else printed anew now and then. */
const TERMINAL_MS = 1_000;
/** In a log a line each second would bury the rest. */
const LOG_MS = 10_000;

interface Out {
  isTTY?: boolean | undefined;
  write(text: string): unknown;
}

export class LiveLine {
  readonly #out: Out;
  #step: { what: string; sinceMs: number; timer: NodeJS.Timeout } | undefined;

  constructor(out: Out = process.stderr) {
    this.#out = out;
  }

  /** The step that begins now; the one before is over. */
  step(what: string): void {
    this.end();
    const timer = setInterval(() => this.#tell(), this.#out.isTTY ? TERMINAL_MS : LOG_MS);
    this.#step = { what, sinceMs: performance.now(), timer };
    this.#out.write(this.#out.isTTY ? `${what} …` : `${what} …\n`);
  }

  #tell(): void {
    if (this.#step === undefined) return;
    const line = `${this.#step.what} … ${Math.round((performance.now() - this.#step.sinceMs) / 1_000)} s`;
    this.#out.write(this.#out.isTTY ? `\r\x1b[2K${line}` : `${line}\n`);
  }

  /** Leaves no line on a terminal, where the result follows. */
  end(): void {
    if (this.#step === undefined) return;
    clearInterval(this.#step.timer);
    this.#step = undefined;
    if (this.#out.isTTY) this.#out.write('\r\x1b[2K');
  }
}
