/**
 * Shows the current step while the user waits, as one line: updated each second on a terminal, otherwise printed again
 * every 10 s.
 */
const TERMINAL_MS = 1_000;
/** Interval on a pipe or file: a line per second would fill a log. */
const LOG_MS = 10_000;

interface Out {
  isTTY?: boolean | undefined;
  write(text: string): unknown;
}

export class ProgressLine {
  readonly #out: Out;
  #step: { what: string; sinceMs: number; timer: NodeJS.Timeout } | undefined;

  constructor(out: Out = process.stderr) {
    this.#out = out;
  }

  /** Begins a step and ends the previous one. */
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

  /** Clears the line on a terminal, because the result is printed there next. */
  end(): void {
    if (this.#step === undefined) return;
    clearInterval(this.#step.timer);
    this.#step = undefined;
    if (this.#out.isTTY) this.#out.write('\r\x1b[2K');
  }
}
