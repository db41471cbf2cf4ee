/** Chooses the relays at which a session is reached. Every agent computes the same relays from its replica. */
import { delegateWeight } from '../../../shared/gossip/gossip-topology.ts';
import type { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';

export interface RelayAgent {
  session: string;
  /** Addresses as published in the registry. */
  addresses: readonly string[];
}

/** Number of relays at which a callee keeps reservations: the first ones that it reaches. */
export const RESERVED_MAX = 2;

/** Maximum number of relays that a caller tries. The callee may not reach the first ones. */
export const RELAYS_TRIED_MAX = 6;

/**
 * The agents that agreed to relay, in the order in which callers try them for `callee` (rendezvous hashing). If a relay
 * joins or leaves, only the callees for which it comes first change their relays. All relays get about the same number
 * of callees.
 */
export function relaysFor(
  callee: string,
  own: string,
  replica: Pick<RegistryReplica, 'entries' | 'ticketState'>,
): RelayAgent[] {
  const relays: RelayAgent[] = [];
  for (const { session, state, payload, ticket } of replica.entries()) {
    if (payload?.relay !== true || state === 'LEFT' || session === own || session === callee) continue;
    if (payload.addresses.length === 0 || replica.ticketState(ticket) !== 'good') continue;
    relays.push({ session, addresses: payload.addresses });
  }
  return relays.sort(
    (a, b) => delegateWeight(callee, a.session) - delegateWeight(callee, b.session) || (a.session < b.session ? -1 : 1),
  );
}
