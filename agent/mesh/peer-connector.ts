import { Backoff } from '../../shared/timing/backoff.ts';
import type { ProvenConnection } from './channel/accept-channel.ts';
import type { Channel } from './channel/channel.ts';
import { ChannelError } from './channel/channel-error.ts';
import type { Circuits } from './circuit/circuits.ts';
import type { PendingDials } from './pending-dials.ts';

/**
 * Head start of the direct path before a relay is tried. It is longer than any round trip, and short for a user who
 * waits.
 */
const HEAD_START_MS = 400;

/** After the direct path to a session failed, it gets no head start for this long. */
const FAILED_MS = 60_000;

/** Maximum number of concurrent connection attempts. Requests may need one for each node. */
const CONNECTS_MAX = 256;

/** A relayed channel without requests is closed after this time, because another agent pays for its bytes. */
const IDLE_MS = 30_000;

/** Minimum and maximum interval between tries of a direct path while a relayed one is in use. */
const DIRECT_MIN_MS = 5_000;
const DIRECT_MAX_MS = 60_000;
/** Maximum interval between attempts to punch a hole. NATs do not change often. */
const PUNCH_MAX_MS = 600_000;

interface PeerConnectorOptions {
  circuits: Pick<Circuits, 'dial' | 'mayReach' | 'avoid'>;
  dials: Pick<PendingDials, 'dial'>;
  /** Opens a direct connection to a session that is reached through a relay. Absent: this agent punches no holes. */
  punch?(session: string): Promise<ProvenConnection>;
  addressesOf(session: string): readonly string[];
  channels: Iterable<Channel>;
  /**
   * Turns the dialed connection into a channel, or returns the channel that is used instead. Undefined if the limit is
   * reached. Owns `proven`.
   */
  take(proven: ProvenConnection): Channel | undefined;
  /** True if either end has open requests on the channel to this session. */
  isUsing(session: string): boolean;
  random(): number;
}

interface Relayed {
  usedAt: number;
  direct: Backoff;
  directAt: number;
  /** Punching costs a circuit at the relay, so it is tried less often than a dial. */
  punch: Backoff;
  punchAt: number;
}

/** Finds paths to other agents: direct, otherwise through a relay, and direct again as soon as that works. */
export class PeerConnector {
  readonly #options: PeerConnectorOptions;
  /** Connection attempts by session. At most CONNECTS_MAX. */
  readonly #open = new Map<string, Promise<Channel>>();
  /** When the direct path to each session last failed, oldest first. At most CONNECTS_MAX. */
  readonly #failedAt = new Map<string, number>();
  /** Channels that run through a relay. */
  readonly #relayed = new Map<Channel, Relayed>();
  readonly #abort = new AbortController();

  constructor(options: PeerConnectorOptions) {
    this.#options = options;
  }

  /** @throws ChannelError if no path leads to the session now */
  connect(session: string): Promise<Channel> {
    const open = this.#open.get(session);
    if (open !== undefined) return open;
    if (this.#open.size >= CONNECTS_MAX) return Promise.reject(new ChannelError('full', 'too many dials'));
    const found = this.#find(session).finally(() => this.#open.delete(session));
    this.#open.set(session, found);
    return found;
  }

  /**
   * True if the direct path failed and a relay may reach the session. `connect` may then succeed although a dial fails.
   */
  wasRelayed(session: string): boolean {
    return this.#failedAt.has(session) && this.#options.circuits.mayReach(session);
  }

  async #find(session: string): Promise<Channel> {
    const { circuits } = this.#options;
    const direct = this.#direct(session);
    if (!circuits.mayReach(session)) return direct;
    const headStart = performance.now() - (this.#failedAt.get(session) ?? Number.NEGATIVE_INFINITY) > FAILED_MS;
    const first = headStart ? await soon(direct) : undefined;
    if (first !== undefined) return first;
    const abort = new AbortController();
    const relayed = this.#relay(session, AbortSignal.any([abort.signal, this.#abort.signal]));
    direct.then(
      () => abort.abort(),
      () => this.#noteFailure(session),
    );
    return Promise.any([direct, relayed]).catch(() =>
      this.#options.addressesOf(session).length > 0 ? direct : relayed,
    );
  }

  #direct(session: string): Promise<Channel> {
    const addresses = this.#options.addressesOf(session);
    const direct =
      addresses.length === 0
        ? Promise.reject(new ChannelError('unreachable', `${session} has published no address`))
        : this.#options.dials.dial(session, addresses);
    direct.catch(() => {});
    return direct;
  }

  async #relay(session: string, signal: AbortSignal): Promise<Channel> {
    const channel = this.#options.take(await this.#options.circuits.dial(session, signal));
    if (channel === undefined) throw new ChannelError('full', 'the maximum number of channels is open');
    return channel;
  }

  #noteFailure(session: string): void {
    this.#failedAt.delete(session);
    this.#failedAt.set(session, performance.now());
    const oldest = this.#failedAt.keys().next().value;
    if (this.#failedAt.size > CONNECTS_MAX && oldest !== undefined) this.#failedAt.delete(oldest);
  }

  /**
   * Call when the peer has a channel and does not answer. True if a relay may be the cause. The channel is then closed,
   * and other paths may be tried.
   */
  stalled(channel: Channel): boolean {
    if (channel.through === undefined) return false;
    this.#options.circuits.avoid(channel.through);
    channel.destroy('nothing arrives through the relay');
    return true;
  }

  /**
   * Closes idle relayed channels, and tries a direct path to the peers of all other relayed channels. Called every few
   * seconds.
   */
  tick(now: number): void {
    const { channels, isUsing, addressesOf, dials, random } = this.#options;
    for (const channel of this.#relayed.keys()) if (channel.closed) this.#relayed.delete(channel);
    for (const channel of [...channels]) {
      if (channel.through === undefined) continue;
      const { session } = channel;
      const known = this.#relayed.get(channel);
      const one = known ?? {
        usedAt: now,
        direct: new Backoff({ minMs: DIRECT_MIN_MS, maxMs: DIRECT_MAX_MS }, random),
        directAt: now,
        punch: new Backoff({ minMs: DIRECT_MIN_MS, maxMs: PUNCH_MAX_MS }, random),
        punchAt: now,
      };
      this.#relayed.set(channel, one);
      if (isUsing(session)) one.usedAt = now;
      if (channel.dialled && now - one.usedAt >= IDLE_MS) {
        channel.close('no request needs the relay');
        continue;
      }
      if (channel.dialled && now >= one.punchAt) this.#punch(session, one, now);
      const addresses = addressesOf(session);
      if (addresses.length === 0 || now < one.directAt) continue;
      one.directAt = now + one.direct.next();
      dials.dial(session, addresses).then(
        () => this.#failedAt.delete(session),
        () => this.#noteFailure(session),
      );
    }
  }

  #punch(session: string, one: Relayed, now: number): void {
    const { punch, take } = this.#options;
    if (punch === undefined) return;
    one.punchAt = now + one.punch.next();
    punch(session).then(
      (proven) => {
        take(proven);
        this.#failedAt.delete(session);
      },
      () => {}, // the path through the relay remains
    );
  }

  close(): void {
    this.#abort.abort();
  }
}

/** Undefined if the promise rejects or takes longer than HEAD_START_MS. */
function soon(direct: Promise<Channel>): Promise<Channel | undefined> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(undefined), HEAD_START_MS);
    direct.then(resolve, () => resolve(undefined)).finally(() => clearTimeout(timer));
  });
}
