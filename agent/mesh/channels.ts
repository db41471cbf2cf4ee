import type { ProvenConnection } from './channel/accept.ts';
import { Channel, type ChannelEvents } from './channel/channel.ts';

/** Full mesh of the largest cluster that is connected in full, ring and random links of larger ones, and requests' channels. */
const CHANNELS_MAX = 256;

/** The end that should close the lesser of two channels may be gone. */
const SPARE_MS = 5_000;

interface MeshChannelsOptions {
  /** Own session. */
  session: string;
  max?: number;
  onGossip: ChannelEvents['onGossip'];
  onFrame: ChannelEvents['onFrame'];
  onMessageEnd: ChannelEvents['onMessageEnd'];
  onFault: ChannelEvents['onFault'];
  /** Each channel, also the lesser of two. */
  onChannel(channel: Channel): void;
  onChannelClosed(channel: Channel): void;
  /** There is a channel to this session now, or a new connection took the old one's place (`opened` after `closed`). */
  onOpened(channel: Channel): void;
  /** There is none any more. */
  onClosed(session: string, reason: string): void;
}

interface Pair {
  primary: Channel;
  /** Two agents dialled each other at once: this one loses and goes as soon as the other is known to stand. */
  spare?: Channel;
}

/**
 * The channels of this agent, one per session. Of two that were dialled from both ends at once both agents keep the direct one, of two alike the one
 * that the smaller session dialled. The dialler is the last to know that a channel stands, so the one that dialled the better channel
 * closes the other: at no time does either end see none.
 */
export class MeshChannels {
  readonly #options: MeshChannelsOptions;
  readonly #max: number;
  /** At most #max. */
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

  /** Takes a proven connection in. Undefined where there is no room. */
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
      // The dialler has lost the old one, whether that is known here or not.
      pair.primary = fresh;
      this.#options.onClosed(fresh.session, 'dialled anew');
      this.#options.onOpened(fresh);
      old.close('dialled anew');
      return;
    }
    const freshWins = sameWay ? fresh.dialled === this.#options.session < fresh.session : direct;
    const [winner, loser] = freshWins ? [fresh, old] : [old, fresh];
    pair.spare?.close('one too many');
    pair.primary = winner;
    pair.spare = loser;
    if (winner.dialled) loser.close('both dialled');
    else setTimeout(() => loser.close('both dialled'), SPARE_MS).unref();
  }

  #onClosed(channel: Channel, reason: string): void {
    const pair = this.#pairs.get(channel.session);
    this.#options.onChannelClosed(channel);
    if (pair === undefined) return;
    if (pair.spare === channel) delete pair.spare;
    if (pair.primary !== channel) return;
    if (pair.spare !== undefined && !pair.spare.closed) {
      pair.primary = pair.spare;
      delete pair.spare;
      return;
    }
    this.#pairs.delete(channel.session);
    this.#options.onClosed(channel.session, reason);
  }

  hangUp(session: string, reason: string): void {
    const { spare, primary } = this.#pairs.get(session) ?? {};
    spare?.close(reason);
    primary?.close(reason);
  }

  /** Says good-bye to all. Idempotent. */
  close(reason: string): void {
    this.#closed = true;
    for (const session of [...this.#pairs.keys()]) this.hangUp(session, reason);
  }
}
