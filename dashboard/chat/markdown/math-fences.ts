/** Finds the beginning and the end of formulas in models' output. */

const CODE = /(```[\s\S]*?(?:```|$)|`[^`\n]*`)/;
const DISPLAY = /\\\[([\s\S]+?)\\\]|\$\$([\s\S]+?)\$\$/g;
/** Matches a display formula that is still streaming. Applied only to the text after the last closed formula. */
const OPEN_DISPLAY = /(?:\\\[|\$\$)([\s\S]*)$/;
const INLINE = /\\\(([\s\S]+?)\\\)/g;
/** Pandoc's rule: no space inside the dollar signs, and no digit after them. All other dollar signs are money. */
const DOLLARS = /\$\$[\s\S]*?\$\$|(?<![\\$])\$(?=\S)[^$\n]*?[^\s$\\]\$(?!\d)|(?<!\\)\$/g;

/**
 * Rewrites formulas to the form that remark-math reads: models also write LaTeX's own brackets, and displayed formulas
 * on one line. Code stays unchanged. `streaming`: more text follows, and the last formula may lack its end.
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

/**
 * Puts each displayed formula on a separate line between `$$`. While the text is streaming, an incomplete last formula
 * is shown as code, because it cannot be rendered.
 */
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
