/** The end of a growing text, looked at again and again, of which only the last part is told. Pure. */

/** Compared to find where the last look ended. */
const OVERLAP_CHARS = 1_024;

/**
 * What `text` has that `before` did not end with; with a mark where something between them is missing. Of a line that repeats through all that
 * is compared, repetitions may go untold: they cannot be told from the same ones seen again.
 */
export function newSince(before: string, text: string): string {
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
