import type { Duplex } from 'node:stream';
import type { ProvenConnection } from '../channel/accept-channel.ts';
import { asChannelError, ChannelError } from '../channel/channel-error.ts';
import type { Purpose } from '../channel/channel-preface.ts';
import { withDeadline } from '../channel/handshake-reads.ts';
import { MESSAGE_MS, receiveMessage, sendMessage } from './circuit-messages.ts';
import { RELAYS_TRIED_MAX, type RelayAgent } from './relay-choice.ts';

/** After this time the next relay is tried in parallel, as is usual for addresses (RFC 8305 §5). */
const STAGGER_MS = 400;

/** A relay that failed is tried last for this long. */
const AVOID_MS = 60_000;
const AVOIDED_MAX = 256;

/** A relay at which two agents can be joined. Each kind of relay has its own implementation. */
export interface RendezvousPoint {
  /** The relay: a session, or a gateway's id. */
  relay: string;
  /**
   * Resolves with a stream to `callee` when the callee has answered. Rejects if the relay cannot join the two agents.
   */
  meet(callee: string, signal: AbortSignal): Promise<Duplex>;
}

interface CircuitDialerOptions {
  /** Relays at which a session may be reached, best first. */
  meetings(callee: string): RendezvousPoint[];
  /** Does the handshake end to end through the relay. */
  secure(socket: Duplex, callee: string, purpose: Purpose): Promise<ProvenConnection>;
}

/**
 * Reaches sessions through relays: tries a few relays in order, and uses the first that leads to an authenticated peer.
 */
export class CircuitDialer {
  readonly #options: CircuitDialerOptions;
  /**
   * Relays that failed after they had accepted a call, with the time until which they are tried last. At most
   * AVOIDED_MAX, oldest first.
   */
  readonly #avoided = new Map<string, number>();

  constructor(options: CircuitDialerOptions) {
    this.#options = options;
  }

  /** @throws ChannelError of the last relay that failed */
  async dial(callee: string, signal: AbortSignal, purpose: Purpose = 'mesh'): Promise<ProvenConnection> {
    const now = performance.now();
    const bad = ({ relay }: RendezvousPoint) => Number((this.#avoided.get(relay) ?? 0) > now);
    const left = this.#options.meetings(callee).sort((a, b) => bad(a) - bad(b));
    left.length = Math.min(left.length, RELAYS_TRIED_MAX);
    if (left.length === 0) throw new ChannelError('unreachable', `no known relay can reach ${callee}`);
    const over = new AbortController();
    try {
      return await firstOf(
        left,
        (meeting) => this.#through(meeting, callee, { signal: AbortSignal.any([signal, over.signal]), purpose }),
        ({ socket }) => socket.destroy(),
      );
    } finally {
      over.abort();
    }
  }

  async #through(
    meeting: RendezvousPoint,
    callee: string,
    { signal, purpose }: { signal: AbortSignal; purpose: Purpose },
  ): Promise<ProvenConnection> {
    const socket = await meeting.meet(callee, signal);
    const abort = () => socket.destroy();
    signal.addEventListener('abort', abort, { once: true });
    try {
      if (signal.aborted) throw new ChannelError('broken', 'the dial was cancelled');
      return { ...(await this.#options.secure(socket, callee, purpose)), through: meeting.relay };
    } catch (error) {
      socket.destroy();
      if (!signal.aborted) this.avoid(meeting.relay);
      throw error;
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  /** Call when a connection through this relay broke: other relays are tried first for a while. */
  avoid(relay: string): void {
    this.#avoided.delete(relay);
    this.#avoided.set(relay, performance.now() + AVOID_MS);
    const oldest = this.#avoided.keys().next().value;
    if (this.#avoided.size > AVOIDED_MAX && oldest !== undefined) this.#avoided.delete(oldest);
  }
}

/** Joins two agents at a third. @param dial opens a connection for circuits, authenticated at both ends */
export function agentRendezvous(
  relay: RelayAgent,
  dial: (relay: RelayAgent) => Promise<ProvenConnection>,
): RendezvousPoint {
  const meet = async (callee: string, signal: AbortSignal) => {
    const { socket } = await dial(relay);
    const abort = () => socket.destroy();
    signal.addEventListener('abort', abort, { once: true });
    socket.on('error', abort);
    try {
      if (signal.aborted) {
        socket.destroy();
        throw new ChannelError('broken', 'the dial was cancelled');
      }
      sendMessage(socket, { type: 'connect', session: callee });
      // Twice the limit of a message: the relay waits for the callee, which may have to reserve again first.
      const message = await withDeadline(socket, 2 * MESSAGE_MS, 'timeout', () => receiveMessage(socket));
      if (message.type === 'connected') return socket;
      socket.destroy();
      const why = message.type === 'refused' ? message.why : message.type;
      throw new ChannelError('unreachable', `the relay ${relay.session} answered ${why}`);
    } finally {
      signal.removeEventListener('abort', abort);
    }
  };
  return { relay: relay.session, meet };
}

/**
 * Calls `begin` for the items of `left` in order. The next item begins when the previous one has failed, or STAGGER_MS
 * after the previous one began. Resolves with the first result. Later results are passed to `discard`.
 */
function firstOf<T, R>(left: T[], begin: (one: T) => Promise<R>, discard: (second: R) => void): Promise<R> {
  return new Promise((resolve, reject) => {
    let [running, over] = [0, false];
    let timer: NodeJS.Timeout | undefined;
    const next = () => {
      clearTimeout(timer);
      const one = left.shift();
      if (one === undefined) return;
      running++;
      if (left.length > 0) timer = setTimeout(next, STAGGER_MS);
      begin(one).then(
        (result) => {
          if (over) return discard(result);
          over = true;
          left.length = 0;
          clearTimeout(timer);
          resolve(result);
        },
        (error: unknown) => {
          running--;
          if (left.length > 0) next();
          else if (running === 0) reject(asChannelError(error));
        },
      );
    };
    next();
  });
}
