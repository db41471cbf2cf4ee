/**
 * Chooses the node that coordinates a blob. Nodes that know the same nodes choose the same coordinator without
 * communication (rendezvous hashing, Thaler and Ravishankar, 1998).
 */

export function chooseCoordinator(blob: string, sessions: Iterable<string>): string | undefined {
  let best: { session: string; weight: number } | undefined;
  for (const session of sessions) {
    const weight = weightOf(`${blob} ${session}`);
    if (best === undefined || weight > best.weight || (weight === best.weight && session < best.session))
      best = { session, weight };
  }
  return best?.session;
}

/**
 * FNV-1a, mixed with the last step of MurmurHash3. Without that step, similar names would always be in the same order.
 */
function weightOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
