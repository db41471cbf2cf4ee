import type { ChannelPeer, Credentials, ProvenConnection } from './channel/accept-channel.ts';
import type { Channel } from './channel/channel.ts';
import { ChannelError } from './channel/channel-error.ts';
import { dialChannel } from './channel/dial-channel.ts';

/**
 * Maximum number of connections that are being opened. The gossip core dials only a few sessions at a time, but
 * requests may need a connection to each node.
 */
const DIALS_MAX = 64;

interface PendingDialsOptions {
  own: Credentials;
  openTicket(ticket: Uint8Array): ChannelPeer;
  /** Returns a session's ticket; undefined if it is not known. */
  ticketOf(session: string): Uint8Array | undefined;
  /**
   * Turns the dialed connection into a channel, or returns the channel that is used instead. Undefined if the limit is
   * reached. Owns `proven`.
   */
  take(proven: ProvenConnection): Channel | undefined;
}

/**
 * Outgoing connections that are being opened, one per session. Concurrent callers for one session get the same
 * connection.
 */
export class PendingDials {
  readonly #options: PendingDialsOptions;
  /** Dials in progress, by session, or by address if the session is not known. At most DIALS_MAX. */
  readonly #open = new Map<string, Promise<Channel>>();
  readonly #abort = new AbortController();

  constructor(options: PendingDialsOptions) {
    this.#options = options;
  }

  /**
   * @param session the expected session; undefined: any peer that answers is accepted
   * @throws ChannelError
   */
  dial(session: string | undefined, addresses: readonly string[]): Promise<Channel> {
    const name = session ?? addresses.join();
    const open = this.#open.get(name);
    if (open !== undefined) return open;
    if (this.#open.size >= DIALS_MAX) return Promise.reject(new ChannelError('full', 'too many dials'));
    const dialled = this.#dial(session, addresses).finally(() => this.#open.delete(name));
    this.#open.set(name, dialled);
    return dialled;
  }

  async #dial(session: string | undefined, addresses: readonly string[]): Promise<Channel> {
    const { own, openTicket, take, ticketOf } = this.#options;
    const ticket = session === undefined ? undefined : ticketOf(session);
    const who = { ...(session === undefined ? {} : { session }), ...(ticket === undefined ? {} : { ticket }) };
    const channel = take(await dialChannel({ own, openTicket, addresses, signal: this.#abort.signal, ...who }));
    if (channel === undefined) throw new ChannelError('full', 'the maximum number of channels is open');
    return channel;
  }

  close(): void {
    this.#abort.abort();
  }
}
