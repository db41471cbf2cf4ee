/**
 * Maximum length of a quotation of a client's text. A path or a name may be as long as all headers of a request, and a
 * client must not be able to fill a response with it.
 */
const QUOTED_MAX_CHARS = 128;

/** Quotes a client's text in an error message. */
export function quoteForMessage(words: string): string {
  if (words.length <= QUOTED_MAX_CHARS) return words;
  // Drop half of a surrogate pair: it is not a character, and JSON would escape it.
  return `${words.slice(0, QUOTED_MAX_CHARS).replace(/[\ud800-\udbff]$/, '')}…`;
}
