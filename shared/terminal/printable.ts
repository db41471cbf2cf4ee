/** Makes foreign text safe for our terminal: output of a provider's agent, an engine, a gateway. */

/**
 * Characters that move a cursor, set a title or begin a line: C0, DEL and C1 (ECMA-48 §5; U+009B alone begins a
 * sequence). Also those that change the direction of the following letters (UAX #9 §2), which can hide text.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is replaced
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g;

/** In one line, with a space for every character that would control the terminal or imitate a line of ours. */
export function printable(text: string): string {
  return text.replace(CONTROLS, ' ');
}

/** Equivalent JSON with more escapes: JSON.stringify escapes only C0. */
export function printableJson(value: unknown, indent: number): string {
  const escaped = (char: string) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(value, null, indent).replace(/[\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, escaped);
}
