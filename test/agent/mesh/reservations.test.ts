/**
 * Reservations at relays, over in-memory sockets: which are kept, which are given up, and which relays are not asked.
 */
import { type Duplex, duplexPair } from 'node:stream';
import { afterEach, expect, it } from 'vitest';
import type { ProvenConnection } from '../../../agent/mesh/channel/accept-channel.ts';
import { receiveMessage, sendMessage } from '../../../agent/mesh/circuit/circuit-messages.ts';
import type { RelayAgent } from '../../../agent/mesh/circuit/relay-choice.ts';
import { Reservations } from '../../../agent/mesh/circuit/relay-reservations.ts';

const relay = (session: string): RelayAgent => ({ session, addresses: [`${session}:1`] });

async function serve(socket: Duplex): Promise<void> {
  socket.on('error', () => {});
  for (;;) {
    const { type } = await receiveMessage(socket);
    sendMessage(socket, { type: type === 'reserve' ? 'reserved' : 'pong' });
  }
}

let opened: Reservations | undefined;
afterEach(() => opened?.close());

function reservations(relays: () => RelayAgent[], dead: ReadonlySet<string> = new Set()) {
  const dialled: string[] = [];
  const dial = async ({ session }: RelayAgent): Promise<ProvenConnection> => {
    dialled.push(session);
    if (dead.has(session)) throw new Error('nothing listens');
    const [socket, far] = duplexPair();
    serve(far).catch(() => far.destroy());
    return { socket } as unknown as ProvenConnection;
  };
  opened = new Reservations({ relays, dial, accept: async () => true, random: () => 0.5 });
  opened.open();
  return { kept: () => opened?.relays.toSorted() ?? [], dialled, look: () => opened?.look() };
}

it('a relay that is given up for better ones is taken again at once where those are gone: it has not failed', async () => {
  let known = ['a', 'b'].map(relay);
  const { kept, look, dialled } = reservations(() => known);
  await expect.poll(kept).toEqual(['a', 'b']);
  known = ['c', 'd', 'a', 'b'].map(relay);
  look();
  await expect.poll(kept).toEqual(['a', 'b', 'c', 'd']);
  look();
  await expect.poll(kept).toEqual(['c', 'd']);
  known = ['a', 'b'].map(relay);
  look();
  expect(dialled).toEqual(['a', 'b', 'c', 'd', 'a', 'b']);
});

it('one that does not answer is left alone, and the next one takes its place', async () => {
  const dead = new Set(['a']);
  const { kept, dialled, look } = reservations(() => ['a', 'b', 'c'].map(relay), dead);
  await expect.poll(kept).toEqual(['b', 'c']);
  dead.clear();
  look();
  expect(dialled).toEqual(['a', 'b', 'c']);
});
