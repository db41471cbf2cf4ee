/** Connections to an agent, made without an agent. */
import { connect } from 'node:net';
import { preface } from '../../../agent/mesh/channel/channel-preface.ts';
import { secureClient, sessionContext } from '../../../agent/mesh/channel/channel-tls.ts';
import { identity, type Node } from './node.ts';

/** The first bytes of a connection, which present this ticket. */
export const introduce = (ticket: Uint8Array) => preface({ purpose: 'mesh', ticket, known: false, asks: false });

/** Sends `bytes` and returns how many bytes came back until the connection ended. */
export function answerTo(port: number, bytes: Uint8Array): Promise<number> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(bytes));
    let got = 0;
    socket.on('data', (piece) => {
      got += piece.length;
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(got));
  });
}

/**
 * A connection with a handshake by the test, so that any bytes may follow it. `taken`: true if `to` makes a channel of
 * it.
 */
export async function byHand(to: Node, own = identity(), taken = true) {
  const socket = connect(to.port, '127.0.0.1');
  socket.write(introduce(own.ticket));
  const secured = secureClient(socket, sessionContext(own));
  secured.on('error', () => {});
  if (taken) await to.log.heard(`opened ${own.session}`);
  return { socket: secured, own };
}
