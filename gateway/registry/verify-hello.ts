import { helloMessage } from '../../shared/lattice/session-id.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';

/** True if the agent has the private key of its ticket, and signed our nonce with it for the host that it dialed. */
export function verifyHello(
  ticket: Ticket,
  { nonce, audience }: { nonce: Uint8Array; audience: string },
  hello: { publicKey: Uint8Array; signature: Uint8Array; generation: number },
): boolean {
  const { session, sessionKey } = ticket;
  if (!sessionKey.every((byte, at) => byte === hello.publicKey[at])) return false;
  const message = helloMessage(session, hello.generation, nonce, audience);
  return workerdCrypto.verify(sessionKey, message, hello.signature);
}
