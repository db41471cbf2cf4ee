/** Finds the line of a value in a TOML text. smol-toml reports lines only of syntax errors, not of values. */

/** Splits a dotted key with bare or quoted parts: `models."org/name".max`. */
function keyParts(text: string): string[] {
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|([\w-]+)/g)].map(([, a, b, c]) => a ?? b ?? c ?? '');
}

/**
 * Returns the line (from 1) of the longest prefix of `path` that has a line. A value in an inline table is found at the
 * table's key, and a missing value at the table in which it is missing.
 */
export function lineOfPath(text: string, path: readonly PropertyKey[]): number {
  const wanted = path.map(String);
  const arrays = new Map<string, number>();
  let table: string[] = [];
  let [best, bestLength] = [1, 0];
  const seen = (at: readonly string[], line: number) => {
    const fits = at.length <= wanted.length && at.every((part, n) => part === wanted[n]);
    if (fits && at.length > bestLength) [best, bestLength] = [line, at.length];
  };
  /** In TOML, a table inside an array of tables belongs to the array's last element. */
  const indexed = (parts: readonly string[]) =>
    parts.flatMap((part, n) => {
      const last = arrays.get(parts.slice(0, n + 1).join('\0'));
      return last === undefined ? [part] : [part, String(last)];
    });
  for (const [index, line] of text.split('\n').entries()) {
    const [, array, plain] = /^\s*(?:\[\[(.+)\]\]|\[(.+)\])\s*(?:#.*)?$/.exec(line) ?? [];
    if (array !== undefined) {
      const parts = keyParts(array);
      const name = parts.join('\0');
      arrays.set(name, (arrays.get(name) ?? -1) + 1);
      table = indexed(parts);
      seen(table, index + 1);
    } else if (plain !== undefined) {
      table = indexed(keyParts(plain));
      seen(table, index + 1);
    } else {
      const [, key] =
        /^\s*((?:"(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+))*)\s*=/.exec(line) ??
        [];
      if (key !== undefined)
        for (let n = 1; n <= keyParts(key).length; n++) seen([...table, ...keyParts(key).slice(0, n)], index + 1);
    }
  }
  return best;
}
