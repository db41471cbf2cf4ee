/** What the one that dials says first, in clear, before the other end has said a byte: PREFACE · u16 length · ticket. */
import type { Socket } from 'node:net';
import { ChannelError } from './error.ts';
import { PREFACE, TICKET_MAX_BYTES } from './limits.ts';
import { readExactly } from './wait.ts';

/** Enough to tell our preface from an HTTP CONNECT. */
const SNIFF_BYTES = 4;
const CONNECT = 'CONN';
const REST_BYTES = PREFACE.length - SNIFF_BYTES;

export function preface(ticket: Uint8Array): Buffer {
  if (ticket.length > TICKET_MAX_BYTES) throw new RangeError(`a ticket of ${ticket.length} bytes`);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(ticket.length);
  return Buffer.concat([Buffer.from(PREFACE, 'latin1'), length, ticket]);
}

/** The ticket, or 'connect' where an HTTP CONNECT begins (nothing of it is taken). Throws ChannelError `stranger`. */
export async function readPreface(socket: Socket): Promise<Uint8Array | 'connect'> {
  const start = await readExactly(socket, SNIFF_BYTES);
  if (start.toString('latin1') === CONNECT) {
    socket.unshift(start);
    return 'connect';
  }
  if (start.toString('latin1') !== PREFACE.slice(0, SNIFF_BYTES)) throw new ChannelError('stranger', 'no preface');
  const rest = await readExactly(socket, REST_BYTES + 2);
  if (rest.toString('latin1', 0, REST_BYTES) !== PREFACE.slice(SNIFF_BYTES))
    throw new ChannelError('stranger', 'another version of the preface');
  const length = rest.readUInt16BE(REST_BYTES);
  if (length === 0 || length > TICKET_MAX_BYTES) throw new ChannelError('stranger', `a ticket of ${length} bytes`);
  return readExactly(socket, length);
}
