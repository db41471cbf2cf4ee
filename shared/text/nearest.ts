import { editDistance } from './edit-distance.ts';

/** Longer names are cut: the distance takes time proportional to the product of the lengths. */
const NAME_MAX_CHARS = 128;

/** The names in `known` that a person who wrote `name` may have meant, best first, at most `limit`. */
export function nearestNames(name: string, known: readonly string[], limit = 3): string[] {
  return ranked(name, known)
    .slice(0, limit)
    .map(({ candidate }) => candidate);
}

/** The most likely intended name; undefined if none is near. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const [best] = ranked(name, known);
  // A third of the letters may be wrong, or two swapped. With more it is another word.
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

/** A name of at least this length that is contained in another counts as near. */
const INSIDE_MIN_CHARS = 3;

const plain = (name: string) => name.toLowerCase().replace(/[^a-z0-9]+/g, '');
