/** Colors for terminals, by the codes of ECMA-48 §8.3.117 (SGR). */
const CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33 } as const;
const ESCAPE = '\u001b';

export type Color = keyof typeof CODES;
/** Returns the text in a color, or unchanged if the output has no color support. */
export type Paint = (color: Color, text: string) => string;

export const plainPaint: Paint = (_, text) => text;
export const colorPaint: Paint = (color, text) => `${ESCAPE}[${CODES[color]}m${text}${ESCAPE}[0m`;

/** Colors are used only on a terminal that supports them, and not if NO_COLOR is set (https://no-color.org). */
export function painterFor(stream: { isTTY?: boolean | undefined }, env: Readonly<Record<string, string | undefined>>) {
  const refused = (env.NO_COLOR ?? '') !== '' || env.TERM === 'dumb';
  return stream.isTTY === true && !refused ? colorPaint : plainPaint;
}
