import { editDistance } from './edit-distance.ts';

/** What the writer of an unknown name most likely meant, or undefined when nothing is near. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  if (name.length > 64) return undefined;
  let best: string | undefined;
  // A third of the letters may be wrong, or two exchanged; more than that is another word.
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(name, candidate);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}
