import type { Socket } from 'node:net';
import type { SecureContext, TLSSocket } from 'node:tls';
import type { Peer } from './channel.ts';
import { ChannelError } from './error.ts';
import { framed } from './messages.ts';
import { provenKey, secureServer } from './secure.ts';
import { eventOf } from './wait.ts';

export interface Credentials {
  context: SecureContext;
  /** Own ticket, encoded. */
  ticket: Uint8Array;
}

/** Proof of one end to the other. */
export interface Proven {
  socket: TLSSocket;
  peer: Peer;
}

/** After a good ticket: TLS, in which the one that dialled must prove the ticket's key; then our own ticket goes out. */
export async function acceptSecure(socket: Socket, peer: Peer, own: Credentials): Promise<Proven> {
  const secured = secureServer(socket, own.context);
  try {
    await eventOf(secured, 'secure');
    const key = provenKey(secured);
    if (key === undefined || Buffer.compare(key, peer.sessionKey) !== 0)
      throw new ChannelError('wrong_key', `the other end does not hold the key of ${peer.session}`);
    secured.write(framed(own.ticket));
    return { socket: secured, peer };
  } catch (error) {
    secured.destroy();
    throw error;
  }
}
