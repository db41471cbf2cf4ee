/**
 * Circuits: agents that cannot reach each other meet at a relay that both reach (libp2p's circuit relay, RFC 8656's relayed addresses).
 *
 *   callee → relay   reserve …… ping, pong …… call, answer     `Reservations`; one idle connection at each of RESERVED_MAX relays
 *   caller → relay   connect SESSION …… connected              `CircuitDialler`; the direct way has a head start of HEAD_START_MS
 *   relay            joins the two, bounded and paced          `CircuitRelay` on an agent with --offer-relay; a gateway's is gateway/circuit
 *
 * Both connections are TLS of the mesh with CIRCUIT in the preface, so that the relay knows two sessions of the registry. What it joins is a
 * second handshake, from end to end, like that of any channel: a relay sees ciphertext, and what it changes or swaps ends the channel.
 * Words are UTF-8 text, each with its length before it, until `connected` and `answer`; then bytes.
 */
import type { Duplex } from 'node:stream';
import { SESSION_PATTERN } from '../../../shared/lattice/node.ts';
import { ChannelError } from '../channel/error.ts';
import { framed } from '../channel/messages.ts';
import { readMessage } from '../channel/wait.ts';

/** `refused` and a reason; a session id has 26 characters. */
const WORD_MAX_BYTES = 128;

/** Shorter than any NAT forgets; a reservation without an answer for PONG_MS is made anew. */
export const PING_MS = 15_000;
export const PONG_MS = 10_000;

/** From a connection to the relay's next word. */
export const WORD_MS = 5_000;

export type Word =
  | { word: 'reserve' | 'reserved' | 'ping' | 'pong' | 'call' | 'answer' | 'connected' }
  | { word: 'connect'; session: string }
  | { word: 'refused'; why: Refusal };

const REFUSALS = ['absent', 'full', 'busy', 'stranger'] as const;
/** absent: no reservation of that session here. full: the relay carries all that it may. busy: this caller asks too much. */
export type Refusal = (typeof REFUSALS)[number];

export function sayWord(socket: Duplex, said: Word): void {
  const text =
    said.word === 'connect' ? `connect ${said.session}` : said.word === 'refused' ? `refused ${said.why}` : said.word;
  socket.write(framed(Buffer.from(text, 'utf8')));
}

/** The next word; what came behind it stays in the socket. @throws ChannelError */
export async function hearWord(socket: Duplex): Promise<Word> {
  const text = (await readMessage(socket, WORD_MAX_BYTES)).toString('utf8');
  const [word = '', rest = '', more] = text.split(' ');
  if (more !== undefined) throw new ChannelError('stranger', 'not a word of circuits');
  switch (word) {
    case 'reserve':
    case 'reserved':
    case 'ping':
    case 'pong':
    case 'call':
    case 'answer':
    case 'connected':
      if (rest === '') return { word };
      break;
    case 'connect':
      if (SESSION_PATTERN.test(rest)) return { word, session: rest };
      break;
    case 'refused': {
      const why = REFUSALS.find((known) => known === rest);
      if (why !== undefined) return { word, why };
    }
  }
  throw new ChannelError('stranger', 'not a word of circuits');
}
