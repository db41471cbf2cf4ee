import type { Signer } from '../../shared/lattice/crypto.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import type { SessionIdentity } from './types.ts';

/** A session as the holder of its key speaks for it. The key lives in this process only: a restart is always a new session. */
export function sessionIdentityOf(ticket: Ticket, key: Signer): SessionIdentity {
  return { session: ticket.session, publicKey: key.publicKey, sign: (message) => key.sign(message) };
}
