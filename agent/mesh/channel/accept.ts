import type { Duplex } from 'node:stream';
import type { SecureContext, TLSSocket } from 'node:tls';
import { nodeCrypto } from '../../host/crypto.ts';
import type { ChannelPeer } from './channel.ts';
import { asChannelError, ChannelError } from './error.ts';
import { withLengthPrefix } from './messages.ts';
import { checkProof, encodeProof, type PeerReleases, PROOF_MAX_BYTES } from './peer-release.ts';
import type { PrefaceFields } from './preface.ts';
import { peerPublicKey, secureServer } from './secure.ts';
import { readMessage, waitForEvent } from './wait.ts';

export interface Credentials {
  context: SecureContext;
  /** Own ticket, encoded. */
  ticket: Uint8Array;
  releases: PeerReleases;
}

/** In the length before the acceptor's ticket: the dialler has to show its release. */
export const RELEASE_REQUIRED = 0x8000_0000;

/** Proof of one end to the other. */
export interface ProvenConnection {
  socket: TLSSocket;
  peer: ChannelPeer;
  /** The relay that passes the bytes on: a session, or a gateway's id. Absent: the direct way. */
  through?: string;
}

/**
 * After a good ticket: TLS, in which the dialler must prove the ticket's key. Then our own ticket goes out, or where it is
 * `known` an empty message in its place: the dialler waits for it, because in TLS 1.3 it cannot tell that it was accepted.
 * Where the dialler `asks`, our release follows. Where this agent requires releases, the dialler's comes back.
 * @throws ChannelError
 */
export async function acceptSecure(
  socket: Duplex,
  peer: ChannelPeer,
  own: Credentials,
  { known, asks }: Pick<PrefaceFields, 'known' | 'asks'>,
): Promise<ProvenConnection> {
  const { required } = own.releases;
  const secured = secureServer(socket, own.context);
  try {
    await waitForEvent(secured, 'secure');
    const key = peerPublicKey(secured);
    if (key === undefined || Buffer.compare(key, peer.sessionKey) !== 0)
      throw new ChannelError('wrong_key', `the other end does not hold the key of ${peer.session}`);
    const ticket = withLengthPrefix(known ? new Uint8Array(0) : own.ticket);
    if (required !== undefined) ticket.writeUInt32BE((ticket.readUInt32BE() | RELEASE_REQUIRED) >>> 0);
    secured.write(asks ? Buffer.concat([ticket, withLengthPrefix(encodeProof(own.releases.own))]) : ticket);
    if (required !== undefined) checkProof(await readMessage(secured, PROOF_MAX_BYTES), required, nodeCrypto);
    return { socket: secured, peer };
  } catch (error) {
    secured.destroy();
    throw asChannelError(error);
  }
}
