import type { Socket } from 'node:net';
import type { SecureContext, TLSSocket } from 'node:tls';
import type { Peer } from './channel.ts';
import { asChannelError, ChannelError } from './error.ts';
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

/**
 * After a good ticket: TLS, in which the one that dialled must prove the ticket's key. Then our own ticket goes out, or where it is
 * `known` an empty message in its place: the dialler waits for it, because in TLS 1.3 it cannot tell that it was taken.
 */
export async function acceptSecure(socket: Socket, peer: Peer, own: Credentials, known: boolean): Promise<Proven> {
  const secured = secureServer(socket, own.context);
  try {
    await eventOf(secured, 'secure');
    const key = provenKey(secured);
    if (key === undefined || Buffer.compare(key, peer.sessionKey) !== 0)
      throw new ChannelError('wrong_key', `the other end does not hold the key of ${peer.session}`);
    secured.write(framed(known ? new Uint8Array(0) : own.ticket));
    return { socket: secured, peer };
  } catch (error) {
    secured.destroy();
    throw asChannelError(error);
  }
}
