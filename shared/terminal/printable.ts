/** Removes characters that control a terminal from text that comes from a provider's agent, an engine or a gateway. */

/**
 * Control characters that move a cursor, set a title or begin a line: C0, DEL and C1 (ECMA-48 §5; U+009B alone begins a
 * sequence). The list includes characters that change the direction of the following letters (UAX #9 §2), because they
 * can hide text.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are removed
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g;

/**
 * Returns the text in one line. Each run of characters that would control the terminal, or imitate a line of our
 * output, becomes a space.
 */
export function printable(text: string): string {
  return text.replace(CONTROLS, ' ');
}

/** Returns the text with its line ends and tabs, and without other characters that would control the terminal. */
export function printableLines(text: string): string {
  return text.replace(CONTROLS, (run) => run.replace(/[^\n\t]/g, ''));
}

/** Like JSON.stringify, but escapes all control characters, not only C0. The parsed value is the same. */
export function printableJson(value: unknown, indent: number): string {
  const escaped = (char: string) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(value, null, indent).replace(/[\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, escaped);
}
