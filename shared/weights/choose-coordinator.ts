import { fnv1a, mixBits } from '../text/hash.ts';

/**
 * Chooses the node that coordinates a blob. Nodes that know the same nodes choose the same coordinator without
 * communication (rendezvous hashing, Thaler and Ravishankar, 1998).
 */
export function chooseCoordinator(blob: string, sessions: Iterable<string>): string | undefined {
  let best: { session: string; weight: number } | undefined;
  for (const session of sessions) {
    const weight = mixBits(fnv1a(`${blob} ${session}`));
    if (best === undefined || weight > best.weight || (weight === best.weight && session < best.session))
      best = { session, weight };
  }
  return best?.session;
}
