/**
 * The tokens that an engine says inside a sealed answer: for the caller to compare with what the gateway booked. The gateway's own count is
 * what the node reported outside the seal.
 */

/** Undefined: the answer says none. A stream says some only where the request asks for it (`stream_options.include_usage`). */
export interface SaidUsage {
  prompt: number | undefined;
  completion: number | undefined;
}

/** Usage stands at an answer's end, or before its last events; of longer answers nothing earlier is kept. */
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

  /** Of what was pushed. */
  get said(): SaidUsage {
    return readAnswerUsage(new TextDecoder().decode(this.#tail));
  }
}

/** The last `"usage": {…}` of a text. Words in an answer have escaped quotes, so that none of them looks like it. */
export function readAnswerUsage(text: string): SaidUsage {
  const [, inside = ''] = [...text.matchAll(/"usage"\s*:\s*\{([\s\S]{0,2000})/g)].at(-1) ?? [];
  const count = (names: readonly string[]) => {
    const found = new RegExp(`"(?:${names.join('|')})"\\s*:\\s*(\\d{1,9})\\b`).exec(inside);
    return found === null ? undefined : Number(found[1]);
  };
  return { prompt: count(NAMES.prompt), completion: count(NAMES.completion) };
}
