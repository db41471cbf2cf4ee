/** Deeper values are refused wherever JSON comes in: what parses them without trouble may fail at writing them, and engines die of it. */
export const JSON_DEPTH_MAX = 512;

/** @throws SyntaxError where the text is no JSON, or is nested deeper than JSON_DEPTH_MAX */
export function parseJson(text: string): unknown {
  // Before it is parsed: 4 MiB of brackets become 100 MiB of arrays.
  if (isDeep(text)) throw new SyntaxError(`nested deeper than ${JSON_DEPTH_MAX}`);
  return JSON.parse(text);
}

/** Undefined where the text is no JSON, or is nested deeper than JSON_DEPTH_MAX. */
export function jsonOf(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

function isDeep(text: string): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x22: // a quote
        at = stringEnd(text, at);
        break;
      case 0x5b: // [
      case 0x7b: // {
        depth++;
        if (depth > JSON_DEPTH_MAX) return true;
        break;
      case 0x5d:
      case 0x7d:
        depth--;
    }
  }
  return false;
}

/** Where the string that begins at `start` has its closing quote. */
function stringEnd(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let from = at;
    while (text.charCodeAt(from - 1) === 0x5c) from--;
    if ((at - from) % 2 === 0) return at;
  }
  return text.length;
}
