/** Agents with channels and nothing above them, and tickets that need no issuer. */
import { createHash } from 'node:crypto';
import type { ChannelPeer } from '../../../agent/mesh/channel/accept-channel.ts';
import type { Channel } from '../../../agent/mesh/channel/channel.ts';
import { Listener, type ListenerLimits } from '../../../agent/mesh/channel/channel-listener.ts';
import { sessionContext } from '../../../agent/mesh/channel/channel-tls.ts';
import { dialChannel } from '../../../agent/mesh/channel/dial-channel.ts';
import type { PeerReleases } from '../../../agent/mesh/channel/peer-release.ts';
import { createSessionKey, type SessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { MeshChannels } from '../../../agent/mesh/mesh-channels.ts';
import { sessionIdFromDigest } from '../../../shared/lattice/session-id.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { atEnd } from '../../support/processes.ts';

export interface Identity extends SessionKey {
  session: string;
  ticket: Uint8Array;
}

export function identity(): Identity {
  const key = createSessionKey();
  return { ...key, session: sessionOf(key.publicKey), ticket: Buffer.concat([Buffer.from('ticket'), key.publicKey]) };
}

const sessionOf = (key: Uint8Array) => sessionIdFromDigest(createHash('sha256').update(key).digest());

/** The word `ticket` and a key: for these tests as good as signed. */
export function openTicket(ticket: Uint8Array): ChannelPeer {
  if (ticket.length !== 38 || Buffer.from(ticket.subarray(0, 6)).toString() !== 'ticket') throw new Error('no ticket');
  const sessionKey = ticket.subarray(6);
  return { session: sessionOf(sessionKey), sessionKey, ticket, provider: 'lab' };
}

/** The events, in order; `heard` resolves after an event that matches. */
class Log {
  readonly lines: string[] = [];
  readonly #waiting = new Set<() => void>();

  add(line: string): void {
    this.lines.push(line);
    for (const look of [...this.#waiting]) look();
  }

  heard(what: RegExp | string, times = 1): Promise<void> {
    const matches = (line: string) => (typeof what === 'string' ? line === what : what.test(line));
    return new Promise((resolve) => {
      const look = () => {
        if (this.lines.filter(matches).length < times) return;
        this.#waiting.delete(look);
        resolve();
      };
      this.#waiting.add(look);
      look();
    });
  }
}

/** An agent that runs from a clone, and accepts any peer. */
export const NO_RELEASES: PeerReleases = { own: undefined, required: undefined };

export class Node {
  readonly own: Identity;
  readonly log = new Log();
  readonly channels: MeshChannels;
  readonly listener: Listener;
  readonly context;
  port = 0;

  readonly releases: PeerReleases;

  constructor(own = identity(), limits: Partial<ListenerLimits> = {}, max = 64, releases = NO_RELEASES) {
    this.own = own;
    this.releases = releases;
    this.context = sessionContext(own);
    this.channels = new MeshChannels({
      session: own.session,
      max,
      onGossip: (_, bytes) => this.log.add(`gossip ${Buffer.from(bytes).toString().slice(0, 40)}`),
      onFrame: (channel, frame) => {
        if (frame.type === 'settled') throw new TypeError('not thought of');
        this.log.add(`${frame.type} from ${channel.session}`);
      },
      onMessageEnd: () => {},
      onFault: (_, error) => this.log.add(`fault ${errorText(error)}`),
      onChannel: () => this.log.add('channel'),
      onChannelClosed: (channel) => {
        this.log.add(`channel closed ${channel.session}`);
        if (this.channels.get(channel.session)?.closed) this.log.add('a closed channel is given out');
      },
      onOpened: (channel) => this.log.add(`opened ${channel.session}`),
      onClosed: (session, reason) => this.log.add(`closed ${session} ${reason}`),
    });
    this.listener = new Listener({
      own: { context: this.context, ticket: own.ticket, releases },
      openTicket,
      onProven: (proven) => void this.channels.add(proven, false),
      limits,
    });
  }

  static async start(
    own = identity(),
    limits: Partial<ListenerLimits> = {},
    max = 64,
    releases = NO_RELEASES,
  ): Promise<Node> {
    const node = new Node(own, limits, max, releases);
    node.port = await node.listener.open('127.0.0.1', 0);
    atEnd(() => node.close());
    return node;
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  async dial(to: { address: string }, session?: string, ticket?: Uint8Array): Promise<Channel | undefined> {
    const own = { context: this.context, ticket: this.own.ticket, releases: this.releases };
    const options = {
      own,
      addresses: [to.address],
      openTicket,
      ...(session === undefined ? {} : { session }),
      ...(ticket === undefined ? {} : { ticket }),
    };
    return this.channels.add(await dialChannel(options), true);
  }

  close(): void {
    this.listener.close();
    this.channels.close('the test is over');
  }
}

export async function connected(limits: Partial<ListenerLimits> = {}): Promise<[Node, Node]> {
  const [a, b] = await Promise.all([Node.start(), Node.start(identity(), limits)]);
  await a.dial(b, b.own.session);
  await b.log.heard(`opened ${a.own.session}`);
  return [a, b];
}
