/**
 * Maximum length of a client's text that is quoted in a message. A path or a name may be as long as all headers of a
 * request, and must not fill the response.
 */
const QUOTED_MAX_CHARS = 128;

/** Quotes a client's text in an error message. */
export function quoteForMessage(words: string): string {
  if (words.length <= QUOTED_MAX_CHARS) return words;
  // Drops half of a surrogate pair, because it is not a character, and JSON would escape it.
  return `${words.slice(0, QUOTED_MAX_CHARS).replace(/[\ud800-\udbff]$/, '')}…`;
}
