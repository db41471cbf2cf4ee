/** A DNS server on loopback that gives every name the address 127.0.0.1. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { atEnd } from '../processes.ts';

const HEADER_BYTES = 12;
const TYPE_A = 1;

/** Returns the server's port. It ends with the test. */
export async function startNameServer(): Promise<number> {
  const socket = createSocket('udp4');
  socket.on('message', (query, { port, address }) => socket.send(answerTo(query), port, address));
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  atEnd(() => void socket.close());
  const { port }: AddressInfo = socket.address();
  return port;
}

/** Returns the response (RFC 1035 §4): the question, and for the type A one record. */
function answerTo(query: Buffer): Buffer {
  let end = HEADER_BYTES;
  for (let length = query.at(end) ?? 0; length > 0; length = query.at(end) ?? 0) end += length + 1;
  const question = query.subarray(HEADER_BYTES, end + 5);
  const isA = question.readUInt16BE(question.length - 4) === TYPE_A;
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(query.readUInt16BE(0), 0);
  header.writeUInt16BE(0x8580, 2); // a response, authoritative, recursion available
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(isA ? 1 : 0, 6);
  // A pointer to the name in the question, type A, class IN, 60 s, four bytes.
  const record = Buffer.from([0xc0, HEADER_BYTES, 0, TYPE_A, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
  return Buffer.concat([header, question, ...(isA ? [record] : [])]);
}
