/** Bound of one value in a statement: Cloudflare allows two million bytes, and a character has at most three. */
const TEXT_MAX_CHARS = 600_000;

/** JSON arrays of the items, in order. Each fits into a value of a statement, unless a single item is too long. */
export function* jsonTexts(items: Iterable<unknown>): Generator<string> {
  let texts: string[] = [];
  let chars = 0;
  for (const item of items) {
    const text = JSON.stringify(item);
    if (texts.length > 0 && chars + text.length > TEXT_MAX_CHARS) {
      yield `[${texts.join(',')}]`;
      [texts, chars] = [[], 0];
    }
    texts.push(text);
    chars += text.length + 1;
  }
  if (texts.length > 0) yield `[${texts.join(',')}]`;
}
