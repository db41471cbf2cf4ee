/**
 * Reads the token counts that an engine reports inside a sealed response, so that a client can compare them with the
 * gateway's usage records. The gateway's records have the counts that the node reported outside the seal.
 */

/**
 * Token counts; undefined: the response does not report them. A stream reports them only if the request asks for them
 * (`stream_options.include_usage`).
 */
export interface SaidUsage {
  prompt: number | undefined;
  completion: number | undefined;
}

/** Bytes of a response's end that are kept. The usage is at the end, or just before the last events. */
const TAIL_BYTES = 16 * 1024;
const NAMES = {
  prompt: ['prompt_tokens', 'input_tokens'],
  completion: ['completion_tokens', 'output_tokens'],
} as const;

export class UsageReader {
  #tail: Uint8Array = new Uint8Array(0);

  push(bytes: Uint8Array): void {
    const kept = this.#tail.subarray(Math.max(0, this.#tail.length + bytes.length - TAIL_BYTES));
    const added = bytes.subarray(Math.max(0, bytes.length - TAIL_BYTES));
    const tail = new Uint8Array(kept.length + added.length);
    tail.set(kept);
    tail.set(added, kept.length);
    this.#tail = tail;
  }

  /** Token counts in the text that was pushed so far. */
  get said(): SaidUsage {
    return readAnswerUsage(new TextDecoder().decode(this.#tail));
  }
}

/** The last `"usage": {…}` of a text. Quotes inside a response's text are escaped, so they cannot match. */
export function readAnswerUsage(text: string): SaidUsage {
  const [, inside = ''] = [...text.matchAll(/"usage"\s*:\s*\{([\s\S]{0,2000})/g)].at(-1) ?? [];
  const count = (names: readonly string[]) => {
    const found = new RegExp(`"(?:${names.join('|')})"\\s*:\\s*(\\d{1,9})\\b`).exec(inside);
    return found === null ? undefined : Number(found[1]);
  };
  return { prompt: count(NAMES.prompt), completion: count(NAMES.completion) };
}
