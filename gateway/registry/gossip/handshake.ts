import { helloMessage } from '../../../shared/lattice/session.ts';
import type { Ticket } from '../../../shared/lattice/ticket.ts';
import { workerdCrypto } from '../../issuer/crypto.ts';

/** The agent holds the private key that its ticket names, and signed with it our nonce, for the host that it dialled. */
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
