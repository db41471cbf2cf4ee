import { parseJson } from '../text/json.ts';
import { LINE_MAX_BYTES } from './input-check.ts';
import { LineSplitter } from './line-splitter.ts';

/** Lines that are tried before a file counts as something else than JSONL. */
const TRIED_MAX = 1_000;

/** Whether one line at least is JSON: OpenAI refuses a batch file without any at its upload. */
export class JsonlSniffer {
  readonly #decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });
  readonly #splitter = new LineSplitter(
    LINE_MAX_BYTES,
    ({ bytes }) => this.#try(bytes),
    () => {
      this.#tried += 1;
    },
  );
  #tried = 0;
  #found = false;

  push(piece: Uint8Array): void {
    if (!this.#found && this.#tried < TRIED_MAX) this.#splitter.push(piece);
  }

  /** The file is over. An empty file counts as JSONL: a batch of it fails with `empty_file`. */
  end(): boolean {
    if (!this.#found && this.#tried < TRIED_MAX) this.#splitter.end();
    return this.#found || this.#tried === 0;
  }

  #try(bytes: Uint8Array): void {
    if (this.#found) return;
    this.#tried += 1;
    try {
      parseJson(this.#decoder.decode(bytes));
      this.#found = true;
    } catch {
      // The next line may be.
    }
  }
}
