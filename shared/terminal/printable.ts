/** Words of others on our terminal: a provider's agent, an engine, a gateway. */

/**
 * What moves a cursor, sets a title or begins a line: C0, DEL and C1 (ECMA-48 §5; U+009B alone begins a sequence). What turns the
 * direction of the letters that follow (UAX #9 §2) hides as well.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is replaced
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g;

/** On one line, with a space for whatever would drive the terminal or look like a line of ours. */
export function printable(text: string): string {
  return text.replace(CONTROLS, ' ');
}

/** JSON of the same value: JSON.stringify escapes C0 alone. */
export function printableJson(value: unknown, indent: number): string {
  const escaped = (char: string) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(value, null, indent).replace(/[\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, escaped);
}
