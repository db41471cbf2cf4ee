/**
 * Splits a text into blocks that are parsed and rendered separately, so that in a growing text only the last one
 * changes.
 */
import { Lexer } from 'marked';

/**
 * A long paragraph is split into pieces of at least this length. Otherwise, if a model never begins a new paragraph,
 * each further word would cost more than the one before.
 */
const PIECE_MIN_CHARS = 600;

/** One top-level block. If it has several pieces, they are one paragraph. */
type Block = readonly string[];

/**
 * Matches quotations and lists that are nested deeper than a person writes. Deep nesting overflows a parser's stack.
 */
const DEEP = /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){33}/m;
/** Matches the same for nesting by indentation: a list in a list of a list. */
const INDENTED = /^[ \t]{100,}(?:[-*+]|\d{1,9}[.)])[ \t]/m;
const CODE = /^ {0,3}```[^`\n]*\n[\s\S]*?(?:^ {0,3}```|$(?![\s\S]))/gm;
/**
 * Signs for which Markdown parsers take quadratic time, with their maximum number in a text. A hostile answer of 20 KB
 * would block the page for ten seconds each time that it grows by a word.
 */
const SIGNS: readonly [signs: RegExp, most: number][] = [
  [/[*_]/g, 5_000],
  [/[~`[$]|\\\(/g, 1_500],
];

/** True if parsing the text would block the page; no person wrote such a text. It is shown unparsed. */
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

/** Splits after sentences, at points where no open markup could be closed by later text. */
function piecesOf(paragraph: string): string[] {
  const pieces: string[] = [];
  const signs = new OpenSigns();
  let from = 0;
  let read = 0;
  for (const { index } of paragraph.matchAll(/[.!?:;,] (?=\S)/g)) {
    const to = index + 2;
    signs.read(paragraph.slice(read, to));
    read = to;
    if (to - from < PIECE_MIN_CHARS || signs.areOpen) continue;
    pieces.push(paragraph.slice(from, to));
    from = to;
  }
  return [...pieces, paragraph.slice(from)];
}

/** Signs of markup that later text could close. Each part of a text is read once. */
class OpenSigns {
  /** Signs that were read an odd number of times. */
  readonly #odd = new Set<string>();
  #brackets = 0;

  get areOpen(): boolean {
    return this.#odd.size > 0 || this.#brackets !== 0;
  }

  read(text: string): void {
    for (const [sign] of text.matchAll(/[*_`$~[\]]/g)) {
      if (sign === '[') this.#brackets++;
      else if (sign === ']') this.#brackets--;
      else if (!this.#odd.delete(sign)) this.#odd.add(sign);
    }
  }
}
