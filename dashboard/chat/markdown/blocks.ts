/** A text in parts that are parsed and drawn each on its own: of a growing text only the last one changes. */
import { Lexer } from 'marked';

/** Longer paragraphs are drawn in pieces: models that never begin a new one would cost more with each word. */
const PIECE_MIN_CHARS = 600;

/** One top-level block; more pieces than one are one paragraph. */
export type Block = readonly string[];

/** Quotations and lists within each other, more than a person writes: each overflows a parser's stack somewhere. */
const DEEP = /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){33}/m;
/** The same, line by line: a list in a list of a list. */
const INDENTED = /^[ \t]{100,}(?:[-*+]|\d{1,9}[.)])[ \t]/m;
const CODE = /^ {0,3}```[^`\n]*\n[\s\S]*?(?:^ {0,3}```|$(?![\s\S]))/gm;
/** Parsers of Markdown take the square of these: a hostile answer of 20 KB would stop the page for ten seconds, at each word that it grows by. */
const SIGNS: readonly [signs: RegExp, most: number][] = [
  [/[*_]/g, 5_000],
  [/[~`[$]/g, 1_500],
];

/** No person wrote it, and to parse it would stop the page: it is shown as it stands. */
export function isTooIntricate(text: string): boolean {
  const written = text.replace(CODE, '');
  if (DEEP.test(written) || INDENTED.test(written)) return true;
  return SIGNS.some(([signs, most]) => (written.match(signs)?.length ?? 0) > most);
}

export function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  let open = '';
  for (const { raw, type } of new Lexer({ gfm: true }).blockTokens(text.replace(/\r\n?/g, '\n'), [])) {
    open += raw;
    // A displayed formula may have empty lines.
    if ((open.match(/\$\$/g)?.length ?? 0) % 2 === 1) continue;
    blocks.push(type === 'paragraph' && open === raw ? piecesOf(raw) : [open]);
    open = '';
  }
  if (open !== '') blocks.push([open]);
  return blocks;
}

/** Cut behind sentences where nothing is open that a later word could close. */
function piecesOf(paragraph: string): string[] {
  const pieces: string[] = [];
  let from = 0;
  for (const { index } of paragraph.matchAll(/[.!?:;,] (?=\S)/g)) {
    const to = index + 2;
    if (to - from < PIECE_MIN_CHARS || !isClosed(paragraph.slice(from, to))) continue;
    pieces.push(paragraph.slice(from, to));
    from = to;
  }
  return [...pieces, paragraph.slice(from)];
}

function isClosed(text: string): boolean {
  const count = (char: string) => text.split(char).length - 1;
  return ['*', '_', '`', '$', '~'].every((char) => count(char) % 2 === 0) && count('[') === count(']');
}
