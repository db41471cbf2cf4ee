import type { Signer } from '../../shared/lattice/crypto-interface.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import type { SessionIdentity } from './tunnel-types.ts';

/**
 * The identity of a session, from its ticket and its key. The key exists only in this process, so a restart is always a
 * new session.
 */
export function sessionIdentityOf(ticket: Ticket, key: Signer): SessionIdentity {
  return { session: ticket.session, publicKey: key.publicKey, sign: (message) => key.sign(message) };
}
