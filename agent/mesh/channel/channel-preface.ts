/**
 * The dialer's first bytes, in clear text, before the other end has sent anything: PREFACE · u16 · ticket. The number
 * is the ticket's length plus these flags: KNOWN if the dialed end need not show its own ticket, ASKS if it must show
 * its release, CIRCUIT if the connection is for a circuit relay (../circuit) and not a channel.
 */
import type { Duplex } from 'node:stream';
import { ChannelError } from './channel-error.ts';
import { PREFACE, PUNCH_PREFACE, TICKET_MESSAGE_MAX_BYTES, WEIGHTS_PREFACE } from './channel-limits.ts';
import { readExactly } from './handshake-reads.ts';

/** Number of bytes that suffice to distinguish our preface from an HTTP CONNECT. */
const SNIFF_BYTES = 4;
const CONNECT = 'CONN';
const REST_BYTES = PREFACE.length - SNIFF_BYTES;

const KNOWN = 0x8000;
const ASKS = 0x4000;
const CIRCUIT = 0x2000;

/** What a connection carries: gossip and requests, weights, or messages about a direct path. */
export type Purpose = 'mesh' | 'weights' | 'punch';

const PREFACES: Readonly<Record<Purpose, string>> = {
  mesh: PREFACE,
  weights: WEIGHTS_PREFACE,
  punch: PUNCH_PREFACE,
};

const PURPOSES = Object.keys(PREFACES) as readonly Purpose[];

export interface PrefaceFields {
  purpose: Purpose;
  ticket: Uint8Array;
  /** True if the dialer already has our ticket. */
  known: boolean;
  /** True if the dialer asks to see our release. */
  asks: boolean;
  /** True if the dialer wants to use the circuit relay. */
  circuit?: boolean;
}

export function preface({ purpose, ticket, known, asks, circuit = false }: PrefaceFields): Buffer {
  if (ticket.length > TICKET_MESSAGE_MAX_BYTES) throw new RangeError(`a ticket cannot have ${ticket.length} bytes`);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(ticket.length | (known ? KNOWN : 0) | (asks ? ASKS : 0) | (circuit ? CIRCUIT : 0));
  return Buffer.concat([Buffer.from(PREFACES[purpose], 'latin1'), length, ticket]);
}

/**
 * Returns the dialer's fields, or 'connect' if an HTTP CONNECT begins, which stays unread.
 * @throws ChannelError `stranger`
 */
export async function readPreface(socket: Duplex): Promise<PrefaceFields | 'connect'> {
  const start = await readExactly(socket, SNIFF_BYTES);
  if (start.toString('latin1') === CONNECT) {
    socket.unshift(start);
    return 'connect';
  }
  if (start.toString('latin1') !== PREFACE.slice(0, SNIFF_BYTES)) throw new ChannelError('stranger', 'no preface');
  const rest = await readExactly(socket, REST_BYTES + 2);
  const purpose = purposeOf(start.toString('latin1') + rest.toString('latin1', 0, REST_BYTES));
  if (purpose === undefined) throw new ChannelError('stranger', 'the preface has an unknown version');
  const number = rest.readUInt16BE(REST_BYTES);
  const length = number & ~(KNOWN | ASKS | CIRCUIT);
  if (length === 0 || length > TICKET_MESSAGE_MAX_BYTES)
    throw new ChannelError('stranger', `a ticket cannot have ${length} bytes`);
  const ticket = await readExactly(socket, length);
  return {
    purpose,
    ticket,
    known: (number & KNOWN) !== 0,
    asks: (number & ASKS) !== 0,
    circuit: (number & CIRCUIT) !== 0,
  };
}

function purposeOf(text: string): Purpose | undefined {
  return PURPOSES.find((purpose) => PREFACES[purpose] === text);
}
