/**
 * Splits a line into words as a shell does: white space separates, quotes and backslashes keep it (POSIX XCU §2.2).
 * Nothing is expanded. Undefined: a quote is not closed.
 */
export function wordsOf(line: string): string[] | undefined {
  const words: string[] = [];
  const pattern = /\s+|'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^\s'"\\]+)/gsy;
  let word: string | undefined;
  while (pattern.lastIndex < line.length) {
    const match = pattern.exec(line);
    if (match === null) return undefined;
    const [space, single, double, escaped, plain] = match;
    const piece = single ?? double?.replace(/\\(["\\$`])/g, '$1') ?? escaped ?? plain;
    if (piece !== undefined) word = (word ?? '') + piece;
    else if (space !== '' && word !== undefined) {
      words.push(word);
      word = undefined;
    }
  }
  return word === undefined ? words : [...words, word];
}
