/** Which relays a session is met at: every agent finds the same ones by its own replica. */
import { delegateWeight } from '../../../shared/gossip/topology.ts';
import type { RegistryReplica } from '../../../shared/lattice/replica.ts';

export interface RelayAgent {
  session: string;
  /** As published. */
  addresses: readonly string[];
}

/** A callee keeps reservations at the first so many that it reaches. */
export const RESERVED_MAX = 2;

/** A caller tries the first so many: some of the first may be out of the callee's reach. */
export const RELAYS_TRIED_MAX = 6;

/**
 * The agents that agreed to relay, in the order in which `callee` is looked for at them (rendezvous hashing): a relay that comes or goes
 * moves its own callees alone, and no relay has more than its share.
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
