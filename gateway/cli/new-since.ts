/** Follows a growing text that is read again and again as its last part only. Pure. */

/** Compared to find where the last look ended. */
const OVERLAP_CHARS = 1_024;

/**
 * The part of `text` that follows the end of `before`, with a mark where output between them is missing. If one line fills all that is
 * compared, repetitions of it may be left out: they look the same as the lines that `before` already had.
 */
export function textAfter(before: string, text: string): string {
  if (before === '') return text;
  if (text.startsWith(before)) return text.slice(before.length);
  // A tail that moved on begins behind `before`'s beginning: the longest end of `before` that `text` begins with.
  for (let from = before.indexOf('\n') + 1; from > 0 && from < before.length; from = before.indexOf('\n', from) + 1)
    if (text.startsWith(before.slice(from))) return text.slice(before.length - from);
  // The first line of `text` may be cut.
  const end = before.slice(-OVERLAP_CHARS);
  const at = text.lastIndexOf(end);
  return at === -1 ? `--- some output is missing here\n${text}` : text.slice(at + end.length);
}
