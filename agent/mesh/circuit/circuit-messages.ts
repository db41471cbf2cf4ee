/**
 * Circuits: agents that cannot reach each other meet at a relay that both can reach (like libp2p's circuit relay, and
 * RFC 8656's relayed addresses).
 *
 *   callee → relay   reserve …… ping, pong …… call, answer     `Reservations`; one idle connection at each of RESERVED_MAX relays
 *   caller → relay   connect SESSION …… connected              `CircuitDialer`; the direct path has a head start of HEAD_START_MS
 *   any → relay      observe …… observed ADDRESS                the outside address of an agent behind a NAT
 *   relay            joins the two, bounded and paced          `CircuitRelay` on an agent with --offer-relay; a gateway's is gateway/circuit
 *
 * Both connections are TLS of the mesh with CIRCUIT in the preface, so the relay knows both sessions from the registry.
 * Through the relay the two ends do a second handshake, end to end, like that of any channel. The relay sees only
 * ciphertext. If it changes or swaps bytes, the channel ends. Messages are UTF-8 text, each with a length prefix, up to
 * `connected` and `answer`; the circuit's bytes follow.
 */
import type { Duplex } from 'node:stream';
import { SESSION_PATTERN } from '../../../shared/lattice/node-record.ts';
import { ChannelError } from '../channel/channel-error.ts';
import { readMessage } from '../channel/handshake-reads.ts';
import { withLengthPrefix } from '../channel/length-prefixed-messages.ts';

/** Maximum length of a message: `refused` and a reason, or a session id of 26 characters. */
const MESSAGE_MAX_BYTES = 128;

/**
 * Interval of pings, shorter than the timeout of any NAT. After PONG_MS without an answer the reservation is made
 * again.
 */
export const PING_MS = 15_000;
export const PONG_MS = 10_000;

/** Maximum wait for the relay's next message on a connection. */
export const MESSAGE_MS = 5_000;

export type CircuitMessage =
  | { type: 'reserve' | 'reserved' | 'ping' | 'pong' | 'call' | 'answer' | 'connected' | 'observe' }
  | { type: 'observed'; address: string }
  | { type: 'connect'; session: string }
  | { type: 'refused'; why: CircuitRefusal };

const REFUSALS = ['absent', 'full', 'busy', 'stranger'] as const;
/**
 * Why a relay refuses. absent: the called session has no reservation here. full: the relay is at its limit. busy: this
 * caller calls too often.
 */
export type CircuitRefusal = (typeof REFUSALS)[number];

export function sendMessage(socket: Duplex, message: CircuitMessage): void {
  const text =
    message.type === 'connect'
      ? `connect ${message.session}`
      : message.type === 'observed'
        ? `observed ${message.address}`
        : message.type === 'refused'
          ? `refused ${message.why}`
          : message.type;
  socket.write(withLengthPrefix(Buffer.from(text, 'utf8')));
}

/** Reads the next message. Bytes after it stay in the socket. @throws ChannelError */
export async function receiveMessage(socket: Duplex): Promise<CircuitMessage> {
  const text = (await readMessage(socket, MESSAGE_MAX_BYTES)).toString('utf8');
  const [type = '', rest = '', more] = text.split(' ');
  if (more !== undefined) throw new ChannelError('stranger', 'the peer sent an unknown circuit message');
  switch (type) {
    case 'reserve':
    case 'reserved':
    case 'ping':
    case 'pong':
    case 'call':
    case 'answer':
    case 'connected':
    case 'observe':
      if (rest === '') return { type };
      break;
    case 'connect':
      if (SESSION_PATTERN.test(rest)) return { type, session: rest };
      break;
    case 'observed':
      if (rest !== '') return { type, address: rest };
      break;
    case 'refused': {
      const why = REFUSALS.find((known) => known === rest);
      if (why !== undefined) return { type, why };
    }
  }
  throw new ChannelError('stranger', 'the peer sent an unknown circuit message');
}
