import type { ProvenConnection } from './channel/accept-channel.ts';
import { Channel, type ChannelEvents } from './channel/channel.ts';

/**
 * Maximum number of channels. It covers the full mesh of the largest fully connected cluster, the ring and random links
 * of larger ones, and channels for requests.
 */
const CHANNELS_MAX = 256;

/**
 * The end that dialed the winning channel closes the losing one. If the losing channel is still open after this time,
 * because that end is gone, this end closes it.
 */
const SPARE_MS = 5_000;

interface MeshChannelsOptions {
  /** This agent's session. */
  session: string;
  max?: number;
  onGossip: ChannelEvents['onGossip'];
  onFrame: ChannelEvents['onFrame'];
  onMessageEnd: ChannelEvents['onMessageEnd'];
  onFault: ChannelEvents['onFault'];
  /** Called for each channel. If two agents dialed each other concurrently, called for both channels. */
  onChannel(channel: Channel): void;
  onChannelClosed(channel: Channel): void;
  /**
   * Called when there is a channel to this session, or when a new connection replaced the old one (`opened` after
   * `closed`).
   */
  onOpened(channel: Channel): void;
  /** Called when there is no channel to this session any more. */
  onClosed(session: string, reason: string): void;
}

interface Pair {
  primary: Channel;
  /**
   * The losing channel, if two agents dialed each other concurrently. It is closed when both ends know the winning
   * channel.
   */
  spare?: Channel;
}

/**
 * The channels of this agent, one per session. If two agents dial each other concurrently, they keep the direct
 * channel. If both channels are direct, or neither is, they keep the channel that the smaller session id dialed. The
 * dialer of that channel closes the other one: it is the last end to learn that its channel is open, so both ends then
 * know a channel to use.
 */
export class MeshChannels {
  readonly #options: MeshChannelsOptions;
  readonly #max: number;
  /** Channels by session. At most #max. */
  readonly #pairs = new Map<string, Pair>();
  #closed = false;

  constructor(options: MeshChannelsOptions) {
    this.#options = options;
    this.#max = options.max ?? CHANNELS_MAX;
  }

  get size(): number {
    return this.#pairs.size;
  }

  get(session: string): Channel | undefined {
    return this.#pairs.get(session)?.primary;
  }

  *[Symbol.iterator](): Iterator<Channel> {
    for (const { primary } of this.#pairs.values()) yield primary;
  }

  /** Adds an authenticated connection. Undefined if the limit is reached. */
  add(proven: ProvenConnection, dialled: boolean): Channel | undefined {
    const pair = this.#pairs.get(proven.peer.session);
    if (this.#closed || (pair === undefined && this.#pairs.size >= this.#max)) {
      proven.socket.destroy();
      return undefined;
    }
    const { onGossip, onFrame, onMessageEnd, onFault } = this.#options;
    const onClosed = (channel: Channel, reason: string) => this.#onClosed(channel, reason);
    const channel = new Channel(proven, dialled, {
      onGossip,
      onFrame,
      onMessageEnd,
      onFault,
      onClosed,
    });
    if (pair === undefined) this.#pairs.set(channel.session, { primary: channel });
    this.#options.onChannel(channel);
    if (pair === undefined) this.#options.onOpened(channel);
    else this.#second(pair, channel);
    channel.start();
    return channel;
  }

  #second(pair: Pair, fresh: Channel): void {
    const old = pair.primary;
    const direct = fresh.through === undefined;
    const sameWay = direct === (old.through === undefined);
    if (fresh.dialled === old.dialled) {
      // The dialer dials again only if it has lost the old channel, even if this end has not noticed that.
      pair.primary = fresh;
      this.#options.onClosed(fresh.session, 'replaced by a new channel');
      this.#options.onOpened(fresh);
      old.close('replaced by a new channel');
      return;
    }
    const freshWins = sameWay ? fresh.dialled === this.#options.session < fresh.session : direct;
    const [winner, loser] = freshWins ? [fresh, old] : [old, fresh];
    pair.spare?.close('replaced by a new channel');
    pair.primary = winner;
    pair.spare = loser;
    if (winner.dialled) loser.close('both ends dialled');
    else setTimeout(() => loser.close('both ends dialled'), SPARE_MS).unref();
  }

  #onClosed(channel: Channel, reason: string): void {
    const wasLast = this.#remove(channel);
    this.#options.onChannelClosed(channel); // the caller may ask for a channel, and must not get the closed one
    if (wasLast) this.#options.onClosed(channel.session, reason);
  }

  /** Returns true if the session has no other channel. */
  #remove(channel: Channel): boolean {
    const pair = this.#pairs.get(channel.session);
    if (pair === undefined) return false;
    if (pair.spare === channel) delete pair.spare;
    if (pair.primary !== channel) return false;
    if (pair.spare !== undefined && !pair.spare.closed) {
      pair.primary = pair.spare;
      delete pair.spare;
      return false;
    }
    return this.#pairs.delete(channel.session);
  }

  hangUp(session: string, reason: string): void {
    const { spare, primary } = this.#pairs.get(session) ?? {};
    spare?.close(reason);
    primary?.close(reason);
  }

  /** Closes all channels and sends the reason. Idempotent. */
  close(reason: string): void {
    this.#closed = true;
    for (const session of [...this.#pairs.keys()]) this.hangUp(session, reason);
  }
}
