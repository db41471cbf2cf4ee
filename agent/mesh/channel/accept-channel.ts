import type { Duplex } from 'node:stream';
import type { SecureContext, TLSSocket } from 'node:tls';
import { nodeCrypto } from '../../host/node-crypto.ts';
import { asChannelError, ChannelError } from './channel-error.ts';
import type { PrefaceFields } from './channel-preface.ts';
import { peerPublicKey, secureServer } from './channel-tls.ts';
import { readMessage, waitForEvent } from './handshake-reads.ts';
import { withLengthPrefix } from './length-prefixed-messages.ts';
import { checkProof, encodeProof, type PeerReleases, PROOF_MAX_BYTES } from './peer-release.ts';

export interface Credentials {
  context: SecureContext;
  /** This session's ticket, encoded. */
  ticket: Uint8Array;
  releases: PeerReleases;
}

/** Flag in the length prefix of the acceptor's ticket. It means that the dialer must show its release. */
export const RELEASE_REQUIRED = 0x8000_0000;

/** An authenticated peer: its ticket is valid, and its TLS key is the ticket's key. */
export interface ChannelPeer {
  session: string;
  /**
   * The peer's provider as this agent's issuer list names it: `name`, or `name@issuer` if another issuer admitted it.
   */
  provider: string;
  /** The peer's raw Ed25519 key, 32 bytes. */
  sessionKey: Uint8Array;
  ticket: Uint8Array;
}

/** A connection whose other end has proven its identity. */
export interface ProvenConnection {
  socket: TLSSocket;
  peer: ChannelPeer;
  /** The relay that passes the bytes on: a session, or a gateway's id. Absent if the connection is direct. */
  through?: string;
}

/**
 * The acceptor's side of a handshake, after the dialer has sent a valid ticket. In a TLS handshake the dialer proves
 * that it holds the ticket's key. Then the acceptor sends its own ticket, or an empty message if the dialer has the
 * ticket already (`known`). The dialer waits for that message, because otherwise it cannot see in TLS 1.3 that it was
 * accepted. If the dialer `asks`, the acceptor's release follows. If this agent requires releases, it then reads the
 * dialer's release.
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
      throw new ChannelError('wrong_key', `the other end does not have the private key of ${peer.session}`);
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
