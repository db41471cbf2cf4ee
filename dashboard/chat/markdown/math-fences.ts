/** Where formulas begin and end in what models write. */

const CODE = /(```[\s\S]*?(?:```|$)|`[^`\n]*`)/;
const DISPLAY = /\\\[([\s\S]+?)\\\]|\$\$([\s\S]+?)\$\$/g;
/** Behind the last one that is closed: one that still comes. */
const OPEN_DISPLAY = /(?:\\\[|\$\$)([\s\S]*)$/;
const INLINE = /\\\(([\s\S]+?)\\\)/g;
/** As pandoc has it: no space within the dollars, no digit behind. What else is a dollar is money. */
const DOLLARS = /\$\$[\s\S]*?\$\$|(?<![\\$])\$(?=\S)[^$\n]*?[^\s$\\]\$(?!\d)|(?<!\\)\$/g;

/**
 * Formulas as remark-math reads them: models write LaTeX's own brackets too, and displayed formulas on one line. In code all stays.
 * `streaming`: more text comes, and the last formula may lack its end.
 */
export function withMathFences(text: string, streaming: boolean): string {
  const parts = text.split(CODE);
  return parts
    .map((part, n) => {
      if (n % 2 === 1) return part;
      return fenced(part, streaming && n === parts.length - 1)
        .replace(INLINE, (_, inside: string) => `$${inside.trim()}$`)
        .replace(DOLLARS, (found) => (found === '$' ? '\\$' : found));
    })
    .join('');
}

/** Of a formula that still comes the source is shown as code: half of one is none. */
function fenced(part: string, streaming: boolean): string {
  const last = [...part.matchAll(DISPLAY)].at(-1);
  const end = last === undefined ? 0 : last.index + last[0].length;
  const closed = part
    .slice(0, end)
    .replace(DISPLAY, (_, brackets?: string, dollars?: string) => `\n$$\n${(brackets ?? dollars ?? '').trim()}\n$$\n`);
  const rest = part.slice(end);
  return closed + (streaming ? rest.replace(OPEN_DISPLAY, (_, tex: string) => asCode(tex)) : rest);
}

const asCode = (tex: string) => (tex.trim() === '' ? '' : `\`${tex.replace(/\s+/g, ' ').trim()}\``);
