/** Longest part of a client's words that is said again: a path or a name may be as long as a head, and an answer is not its client's to fill. */
const QUOTED_MAX_CHARS = 128;

/** What a client wrote, for a message that names it. */
export function quoted(words: string): string {
  if (words.length <= QUOTED_MAX_CHARS) return words;
  // Half of a surrogate pair is no letter, and JSON would have it as one.
  return `${words.slice(0, QUOTED_MAX_CHARS).replace(/[\ud800-\udbff]$/, '')}…`;
}
