/** Finds the new part of a growing text, if each read returns only its end. Pure. */

/** How many characters of the previous text are compared to find its end. */
const OVERLAP_CHARS = 1_024;

/**
 * Returns the part of `text` after the end of `before`, with a marker if output between them is missing. If a line is
 * repeated often enough to fill OVERLAP_CHARS, some of its repetitions may be missing from the result, because they
 * look like lines that `before` already had.
 */
export function appendedText(before: string, text: string): string {
  if (before === '') return text;
  if (text.startsWith(before)) return text.slice(before.length);
  // If the oldest output was dropped, `text` begins inside `before`. Finds the longest end of `before` with which
  // `text` begins.
  for (let from = before.indexOf('\n') + 1; from > 0 && from < before.length; from = before.indexOf('\n', from) + 1)
    if (text.startsWith(before.slice(from))) return text.slice(before.length - from);
  // The first line of `text` may be incomplete, so it may not be a line of `before`. Searches `text` for the end of
  // `before`.
  const end = before.slice(-OVERLAP_CHARS);
  const at = text.lastIndexOf(end);
  return at === -1 ? `--- some output is missing here\n${text}` : text.slice(at + end.length);
}
