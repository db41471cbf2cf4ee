/** The parts of an answer that are read aloud. */

/** Engines take at most 4,096 characters; a shorter first piece is heard sooner. */
const PIECE_MAX_CHARS = 1_000;
/** Longer answers are read up to here: an hour of speech. */
const SPOKEN_MAX_CHARS = 60_000;

/** The text without its Markdown. Code is left out, because a listener cannot follow it. */
export function spokenText(markdown: string): string {
  return markdown
    .replace(/^(```|~~~)[\s\S]*?(?:^\1|$(?![\s\S]))/gm, ' ')
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/^\s*(?:#{1,6}|>|[-*+]|\|)\s?/gm, '')
    .replace(/[*_`~|]/g, '')
    .replace(/\s+/g, ' ')
    .trim()
    .slice(0, SPOKEN_MAX_CHARS);
}

/** Pieces that end with a sentence, or with a word. */
export function spokenPieces(text: string): string[] {
  const pieces: string[] = [];
  for (let rest = text; rest !== ''; ) {
    const end = endOf(rest);
    pieces.push(rest.slice(0, end));
    rest = rest.slice(end).trimStart();
  }
  return pieces;
}

function endOf(text: string): number {
  if (text.length <= PIECE_MAX_CHARS) return text.length;
  const head = text.slice(0, PIECE_MAX_CHARS);
  const sentence = Math.max(...['. ', '! ', '? ', '。'].map((mark) => head.lastIndexOf(mark)));
  if (sentence > 0) return sentence + 1;
  const word = head.lastIndexOf(' ');
  return word > 0 ? word : PIECE_MAX_CHARS;
}
