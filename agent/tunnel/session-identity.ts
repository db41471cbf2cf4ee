import type { Signer } from '../../shared/lattice/crypto-interface.ts';
import { helloMessage } from '../../shared/lattice/session-id.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import type { Frame } from '../../shared/wire/frames.ts';
import type { SessionIdentity } from './tunnel-types.ts';

/**
 * The identity of a session, from its ticket and its key. The key is never stored, so after a restart the agent has a
 * new session.
 */
export function sessionIdentityOf(ticket: Ticket, key: Signer): SessionIdentity {
  return { session: ticket.session, publicKey: key.publicKey, sign: (message) => key.sign(message) };
}

/** The answer to a gateway's challenge. `audience`: the socket's purpose and the gateway's host. */
export function helloFrame(
  { session, publicKey, sign }: SessionIdentity,
  { nonce, audience, generation, window }: { nonce: Uint8Array; audience: string; generation: number; window: number },
): Frame {
  const signature = sign(helloMessage(session, generation, nonce, audience));
  return { type: 'hello', publicKey, signature, generation, window };
}
