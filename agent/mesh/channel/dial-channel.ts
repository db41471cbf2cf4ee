import type { Duplex } from 'node:stream';
import { AdaptiveTimeout } from '../../../shared/timing/adaptive-timeout.ts';
import { nodeCrypto } from '../../host/node-crypto.ts';
import { waitClock } from '../../wait-clock.ts';
import { type ChannelPeer, type Credentials, type ProvenConnection, RELEASE_REQUIRED } from './accept-channel.ts';
import { asChannelError, ChannelError } from './channel-error.ts';
import { ADDRESSES_MAX, DIALLED_HANDSHAKE, TICKET_MESSAGE_MAX_BYTES } from './channel-limits.ts';
import { type Purpose, preface } from './channel-preface.ts';
import { peerPublicKey, secureClient } from './channel-tls.ts';
import { readExactly, readMessage, waitForEvent, withDeadline } from './handshake-reads.ts';
import { type Address, firstConnection } from './happy-eyeballs.ts';
import { LENGTH_BYTES, withLengthPrefix } from './length-prefixed-messages.ts';
import { checkProof, encodeProof, PROOF_MAX_BYTES } from './peer-release.ts';

export interface ChannelDialOptions {
  own: Credentials;
  /** Addresses of the peer as `host:port`, tried in this order. */
  addresses: readonly string[];
  /**
   * The expected session. Undefined for an address that was configured without one: any peer with a valid ticket is
   * accepted.
   */
  session?: string;
  /** The session's ticket, if it is already known. It is verified like any other ticket. */
  ticket?: Uint8Array;
  /** Verifies a ticket. Throws if this agent does not accept it. */
  openTicket(ticket: Uint8Array): ChannelPeer;
  /** What the connection will carry; default: `mesh`. */
  purpose?: Purpose;
  signal?: AbortSignal;
  /** The port from which the connection begins; default: any. */
  localPort?: number;
  /** True if the connection is for the peer's circuit relay and does not become a channel. */
  circuit?: boolean;
}

/** Parses `10.0.0.1:7` or `[fe80::1]:7`; undefined for anything else. */
export function parseAddress(text: string): Address | undefined {
  const match = /^(?:\[([0-9a-fA-F:.]{2,45})\]|([A-Za-z0-9._-]{1,253})):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  return host === undefined || port < 1 || port > 65_535 ? undefined : { host, port };
}

/**
 * Opens an authenticated connection to a peer, at the first of its addresses that works.
 * @throws ChannelError of the address at which the connection got furthest
 */
export async function dialChannel(options: ChannelDialOptions): Promise<ProvenConnection> {
  const { addresses, signal, localPort } = options;
  const left = addresses.slice(0, ADDRESSES_MAX).flatMap((address) => parseAddress(address) ?? []);
  let trouble: ChannelError | undefined;
  do {
    try {
      const socket = await firstConnection(left, signal, localPort);
      return await secureDialedSocket(socket, options);
    } catch (error) {
      if (!(error instanceof ChannelError)) throw error;
      if (trouble === undefined || error.code !== 'unreachable') trouble = error;
    }
    // Try the other addresses: two networks may use the same address, so the host that answered may not be the peer.
  } while (left.length > 0);
  throw trouble;
}

/** Timeouts of handshakes. A handshake is TLS and two signatures at each end, while engines load on the same cores. */
const handshakes = new AdaptiveTimeout(DIALLED_HANDSHAKE);

type Handshake = Omit<ChannelDialOptions, 'addresses'>;

/**
 * Does the handshake on an open connection, which is direct or runs through a relay. Ends the connection on failure.
 * @throws ChannelError
 */
export async function secureDialedSocket(socket: Duplex, options: Handshake): Promise<ProvenConnection> {
  const abort = () => socket.destroy(new ChannelError('broken', 'the dial was cancelled'));
  options.signal?.addEventListener('abort', abort, { once: true });
  try {
    const [waitMs, begunAt] = [handshakes.ms, waitClock.now()];
    const proven = await withDeadline(socket, waitMs, 'timeout', () => handshake(socket, options));
    handshakes.answered(waitClock.now() - begunAt);
    return proven;
  } catch (error) {
    if (error instanceof ChannelError && error.code === 'timeout') handshakes.expired();
    throw error;
  } finally {
    options.signal?.removeEventListener('abort', abort);
  }
}

async function handshake(socket: Duplex, options: Handshake): Promise<ProvenConnection> {
  const { own, purpose = 'mesh' } = options;
  const { required } = own.releases;
  const { ticket: known, circuit = false } = options;
  const asks = required !== undefined;
  socket.write(preface({ purpose, ticket: own.ticket, known: known !== undefined, asks, circuit }));
  const tls = secureClient(socket, own.context);
  try {
    await waitForEvent(tls, 'secureConnect');
    const key = peerPublicKey(tls);
    const number = (await readExactly(tls, LENGTH_BYTES)).readUInt32BE();
    const length = number % RELEASE_REQUIRED;
    if (length > TICKET_MESSAGE_MAX_BYTES) throw new ChannelError('stranger', `a ticket cannot have ${length} bytes`);
    const shown = length === 0 ? options.ticket : await readExactly(tls, length);
    if (shown === undefined) throw new ChannelError('stranger', 'no ticket');
    const peer = opened(shown, options);
    if (key === undefined || Buffer.compare(key, peer.sessionKey) !== 0)
      throw new ChannelError('wrong_key', `the other end does not have the private key of ${peer.session}`);
    if (options.session !== undefined && options.session !== peer.session)
      throw new ChannelError('wrong_key', `${peer.session} answered at the address of ${options.session}`);
    if (required !== undefined) checkProof(await readMessage(tls, PROOF_MAX_BYTES), required, nodeCrypto);
    if (number >= RELEASE_REQUIRED) tls.write(withLengthPrefix(encodeProof(own.releases.own)));
    return { socket: tls, peer };
  } catch (error) {
    tls.destroy();
    throw asChannelError(error);
  }
}

function opened(ticket: Uint8Array, options: Handshake): ChannelPeer {
  try {
    return options.openTicket(ticket);
  } catch (error) {
    throw new ChannelError('stranger', 'the ticket of the other end is not valid', { cause: error });
  }
}
