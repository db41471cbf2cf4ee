/**
 * Maximum nesting depth wherever JSON is read. A parser may accept deeper values, but serializing them may fail, and
 * they crash engines.
 */
export const JSON_DEPTH_MAX = 512;

/** @throws SyntaxError if the text is not JSON, or is nested deeper than JSON_DEPTH_MAX */
export function parseJson(text: string): unknown {
  // The depth is checked before parsing, because 4 MiB of brackets would become 100 MiB of arrays.
  if (isDeep(text)) throw new SyntaxError(`nested deeper than ${JSON_DEPTH_MAX}`);
  return JSON.parse(text);
}

/** Parses JSON. Undefined if the text is not JSON, or is nested deeper than JSON_DEPTH_MAX. */
export function tryParseJson(text: string): unknown {
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
      case 0x22: // quotation mark
        at = stringEnd(text, at);
        break;
      case 0x5b: // opening bracket
      case 0x7b: // opening brace
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

/** Position of the closing quote of the string that begins at `start`. */
function stringEnd(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let from = at;
    while (text.charCodeAt(from - 1) === 0x5c) from--;
    if ((at - from) % 2 === 0) return at;
  }
  return text.length;
}
