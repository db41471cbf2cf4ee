import { editDistance } from '../../shared/text/edit-distance.ts';

/** The names in `known` that a person who wrote `name` may have meant, best first, at most `limit`. */
export function nearest(name: string, known: readonly string[], limit = 3): string[] {
  const wanted = plain(name).slice(0, 128);
  return known
    .map((candidate) => ({ candidate, distance: distance(wanted, plain(candidate)) }))
    .sort((a, b) => a.distance - b.distance || a.candidate.localeCompare(b.candidate))
    .slice(0, limit)
    .map(({ candidate }) => candidate);
}

const plain = (name: string) => name.toLowerCase().replace(/[^a-z0-9]+/g, '');

/** Levenshtein distance over the longer length; a name inside the other counts as near. */
function distance(a: string, b: string): number {
  if (a !== '' && (b.includes(a) || a.includes(b))) return Math.abs(a.length - b.length) / 1000;
  return editDistance(a, b) / Math.max(a.length, b.length, 1);
}
