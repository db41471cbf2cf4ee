import { parseJson } from '../text/parse-json.ts';
import { LINE_MAX_BYTES } from './batch-input-check.ts';
import { LineSplitter } from './line-splitter.ts';

/** Number of lines that are tried before a file counts as not JSONL. */
const TRIED_MAX = 1_000;

/** Checks that at least one line of a file is JSON. OpenAI refuses the upload of a batch file without such a line. */
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

  /**
   * Call when the file is complete. True if it is JSONL. An empty file counts as JSONL, because its batch later fails
   * with the clearer `empty_file`.
   */
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
      // This line is not JSON; the next one may be.
    }
  }
}
