/**
 * Splits a long text into chunks of a few pages. In a growing text all chunks but the last stay the same, and cost
 * nothing when text is added.
 */

/** A shorter text is one chunk. Measured: a chunk of this size is parsed in about 2 ms. */
const CHUNK_MIN_CHARS = 4_000;

/** Matches a line that certainly begins a new block: not a continued list, a quotation, a table or an indented line. */
const BEGINS_A_BLOCK = /^(?:[\p{L}#`]|\*\*)/u;
const FENCE = /^ {0,3}(?:```|~~~)/;

/**
 * Splits at a blank line that ends a block, if nothing is open. `before`: the chunks of the beginning of this text. The
 * joined chunks equal the text.
 */
export function chunksOf(text: string, before: readonly string[] = []): string[] {
  const chunks: string[] = [];
  let from = 0;
  for (const chunk of before.slice(0, -1)) {
    if (!text.startsWith(chunk, from)) break;
    chunks.push(chunk);
    from += chunk.length;
  }
  for (;;) {
    const cut = nextCut(text, from);
    if (cut === undefined) break;
    chunks.push(text.slice(from, cut));
    from = cut;
  }
  return [...chunks, text.slice(from)];
}

function nextCut(text: string, from: number): number | undefined {
  if (text.length - from < CHUNK_MIN_CHARS) return undefined;
  let inCode = false;
  let dollars = 0;
  let brackets = 0;
  let isBlankBefore = false;
  for (let at = from; at < text.length; ) {
    const end = text.indexOf('\n', at);
    const line = text.slice(at, end < 0 ? text.length : end);
    const isOpen = inCode || dollars % 2 === 1 || brackets > 0;
    if (isBlankBefore && !isOpen && at - from >= CHUNK_MIN_CHARS && BEGINS_A_BLOCK.test(line)) return at;
    if (FENCE.test(line)) inCode = !inCode;
    else if (!inCode) {
      dollars += line.split('$$').length - 1;
      brackets += line.split('\\[').length - line.split('\\]').length;
    }
    isBlankBefore = line.trim() === '';
    if (end < 0) return undefined;
    at = end + 1;
  }
  return undefined;
}
