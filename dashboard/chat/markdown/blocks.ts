/** A text in parts that are parsed and drawn each on its own: of a growing text only the last one changes. */
import { Marked } from 'marked';

const splitter = new Marked({ gfm: true });

/** Longer paragraphs are drawn in pieces: models that never begin a new one would cost more with each word. */
const PIECE_MIN_CHARS = 600;

/** One top-level block; more pieces than one are one paragraph. */
export type Block = readonly string[];

export function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  let open = '';
  for (const { raw, type } of splitter.lexer(text)) {
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
