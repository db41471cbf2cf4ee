/**
 * Levenshtein distance, computed one row at a time. The time is proportional to the product of the lengths, so
 * untrusted input must be shortened first.
 */
function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = (previous[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(substitution, (previous[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1));
    }
    previous = row;
  }
  return previous[b.length] ?? 0;
}

/** Maximum length of a name that is compared. Longer names are shortened. */
const NAME_MAX_CHARS = 128;

/** The names in `known` that are most similar to `name`, best first, at most `limit`. */
export function nearestNames(name: string, known: readonly string[], limit = 3): string[] {
  return ranked(name, known)
    .slice(0, limit)
    .map(({ candidate }) => candidate);
}

/** The known name that was probably meant; undefined if none is similar enough. */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const [best] = ranked(name, known);
  // A name is similar if at most a third of its letters differ, or if two letters are swapped.
  const near = best !== undefined && (best.inside || best.letters <= Math.max(2, Math.floor(name.length / 3)));
  return near ? best.candidate : undefined;
}

function ranked(name: string, known: readonly string[]) {
  const wanted = plain(name.slice(0, NAME_MAX_CHARS));
  return known
    .map((candidate) => {
      const other = plain(candidate);
      const inside = wanted.length >= INSIDE_MIN_CHARS && (other.includes(wanted) || wanted.includes(other));
      const letters = inside ? Math.abs(other.length - wanted.length) / 1000 : editDistance(wanted, other);
      return { candidate, inside, letters, rank: letters / Math.max(wanted.length, other.length, 1) };
    })
    .sort((a, b) => a.rank - b.rank || a.candidate.localeCompare(b.candidate));
}

/** A name of at least this length counts as similar to a name that contains it. */
const INSIDE_MIN_CHARS = 3;

const plain = (name: string) => name.toLowerCase().replace(/[^a-z0-9]+/g, '');
