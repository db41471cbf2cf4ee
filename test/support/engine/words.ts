/** The mock's vocabulary: a repeated sentence that describes the mock. */
const SENTENCE =
  'This is a stand-in engine and not a language model: its words come from a list , the same ones each time .'.split(
    ' ',
  );

/** The n-th token; every token but the first begins with a space, as in most tokenizers. */
export function token(n: number): string {
  const word = SENTENCE[n % SENTENCE.length] ?? '';
  return n === 0 ? word : ` ${word}`;
}

/** Returns `tokens` tokens of the text, from token `already` on. */
export function text(tokens: number, already = 0): string {
  let out = '';
  for (let n = 0; n < tokens; n++) out += token(already + n);
  return out;
}

/** The mock's count of a prompt's tokens: four characters each, rounded up. */
export function countTokens(prompt: unknown): number {
  const chars = typeof prompt === 'string' ? prompt.length : (JSON.stringify(prompt ?? '')?.length ?? 0);
  return Math.max(1, Math.ceil(chars / 4));
}

const PATTERN_PERIOD = 65_521;
let pattern: Buffer | undefined;

/**
 * Bytes `offset … offset + length` of an endless pattern with a prime period: a lost, doubled or swapped block changes
 * a digest.
 */
export function patternBytes(offset: number, length: number): Buffer {
  if (pattern === undefined) {
    pattern = Buffer.alloc(PATTERN_PERIOD);
    let x = 1;
    for (let i = 0; i < PATTERN_PERIOD; i++) {
      x = (Math.imul(x, 1_103_515_245) + 12_345) >>> 0;
      pattern[i] = x >>> 16;
    }
  }
  const out = Buffer.allocUnsafe(length);
  for (let done = 0; done < length; ) {
    const at = (offset + done) % PATTERN_PERIOD;
    done += pattern.copy(out, done, at, Math.min(PATTERN_PERIOD, at + length - done));
  }
  return out;
}
