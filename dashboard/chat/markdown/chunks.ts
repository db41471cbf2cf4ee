/** A long text in parts of some pages: of a growing text all but the last stay as they are, and cost nothing with the next word. */

/** Below it a text is one part. Measured: a part of so much is read in about 2 ms. */
const CHUNK_MIN_CHARS = 4_000;

/** A new block begins with it for certain: no list that goes on, no quotation, no table, nothing indented. */
const BEGINS_A_BLOCK = /^(?:[\p{L}#`]|\*\*)/u;
const FENCE = /^ {0,3}(?:```|~~~)/;

/** Cut where a blank line ends a block and nothing is open. `before`: what the beginning of this text gave. Joined they are the text. */
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
