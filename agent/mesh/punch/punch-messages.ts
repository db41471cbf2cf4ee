/**
 * Messages of two agents that want to open a direct path, over an authenticated connection through a relay:
 *
 *   caller → callee   from ADDRESS            the caller's outside address, as a relay sees it
 *   callee → caller   from ADDRESS | unable
 *   caller → callee   ping, pong back, go     the caller starts half a round trip after `go`, the callee immediately
 *
 * UTF-8 text, each with a length prefix.
 */
import { isIPv4 } from 'node:net';
import type { Duplex } from 'node:stream';
import { ChannelError } from '../channel/channel-error.ts';
import { parseAddress } from '../channel/dial-channel.ts';
import { readMessage } from '../channel/handshake-reads.ts';
import type { Address } from '../channel/happy-eyeballs.ts';
import { withLengthPrefix } from '../channel/length-prefixed-messages.ts';

const MESSAGE_MAX_BYTES = 64;
const WORDS = ['unable', 'ping', 'pong', 'go'] as const;

export type PunchMessage = { type: (typeof WORDS)[number] } | { type: 'from'; address: Address };

export function sendPunchMessage(socket: Duplex, message: PunchMessage): void {
  const text = message.type === 'from' ? `from ${message.address.host}:${message.address.port}` : message.type;
  socket.write(withLengthPrefix(Buffer.from(text, 'utf8')));
}

/** @throws ChannelError */
export async function receivePunchMessage(socket: Duplex): Promise<PunchMessage> {
  const text = (await readMessage(socket, MESSAGE_MAX_BYTES)).toString('utf8');
  const word = WORDS.find((known) => known === text);
  if (word !== undefined) return { type: word };
  const address = text.startsWith('from ') ? outsideAddress(text.slice('from '.length)) : undefined;
  if (address === undefined) throw new ChannelError('stranger', 'the peer sent an unknown punch message');
  return { type: 'from', address };
}

/** Ports below this belong to services. A peer must not make this agent connect to one. */
const PORT_MIN = 1_024;

/**
 * Parses an IPv4 address outside of a NAT; undefined for any other. A peer must not make this agent connect to hosts of
 * its own network. `012.0.0.1` is no address here, because the C library reads it as 10.0.0.1. IPv6 has no NATs, so
 * agents reach each other there or a firewall forbids it.
 */
export function outsideAddress(text: string): Address | undefined {
  const address = parseAddress(text);
  if (address === undefined || address.port < PORT_MIN || !isIPv4(address.host)) return undefined;
  const [a = 0, b = 0] = address.host.split('.').map(Number);
  const isInside =
    a === 0 ||
    a === 10 ||
    a === 127 ||
    a >= 224 ||
    (a === 100 && b >= 64 && b < 128) ||
    (a === 169 && b === 254) ||
    (a === 172 && b >= 16 && b < 32) ||
    (a === 192 && b === 168);
  return isInside ? undefined : address;
}
