import type { Duplex } from 'node:stream';
import { Backoff } from '../../../shared/timing/backoff.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import type { ProvenConnection } from '../channel/accept-channel.ts';
import { ChannelError } from '../channel/channel-error.ts';
import { withDeadline } from '../channel/handshake-reads.ts';
import { MESSAGE_MS, PING_MS, PONG_MS, receiveMessage, sendMessage } from './circuit-messages.ts';
import { RESERVED_MAX, type RelayAgent } from './relay-choice.ts';

/** Interval at which the replica is searched for relays; they join and leave with agents. */
const POLL_MS = 5_000;
const RETRY = { minMs: 2_000, maxMs: 120_000 };

/** Relays that failed recently. */
const FAILED_MAX = 256;

/** Concurrent handshakes through relays; more wait. */
const ACCEPTING_MAX = 16;

interface ReservationsOptions {
  /** Relays at which callers look for this agent, best first. */
  relays(): RelayAgent[];
  /** A connection for circuits, authenticated at both ends. Rejects if it cannot be opened. */
  dial(relay: RelayAgent): Promise<ProvenConnection>;
  /**
   * A caller's bytes begin, and are handled like a listener's connection. Returns false if they did not lead to a
   * channel. Owns the socket.
   */
  accept(socket: Duplex, relay: string): Promise<boolean>;
  random(): number;
}

interface Held {
  socket?: Duplex;
  reserved: boolean;
  /** Ended by this agent in favor of a better relay: its relay has not failed. */
  dropped: boolean;
}

interface Failed {
  backoff: Backoff;
  until: number;
}

/**
 * Keeps this agent reachable for agents that cannot dial it: holds a reservation at each of the first RESERVED_MAX
 * relays that answer.
 */
export class Reservations {
  readonly #options: ReservationsOptions;
  /** By relay. RESERVED_MAX, and briefly their replacements too. */
  readonly #held = new Map<string, Held>();
  /** At most FAILED_MAX, the oldest first. */
  readonly #failed = new Map<string, Failed>();
  /** Calls with an unfinished handshake. */
  #accepting = 0;
  #timer: NodeJS.Timeout | undefined;
  #open = false;

  constructor(options: ReservationsOptions) {
    this.#options = options;
  }

  /** Relays that currently hold a reservation. */
  get relays(): string[] {
    return [...this.#held].flatMap(([relay, { reserved }]) => (reserved ? [relay] : []));
  }

  open(): void {
    this.#open = true;
    this.#timer = setInterval(() => this.look(), POLL_MS);
    this.look();
  }

  /** Reserves at relays that are better than the current ones. */
  look(): void {
    if (!this.#open) return;
    const now = performance.now();
    const all = this.#options.relays();
    const usable = all.filter(
      ({ session }) => this.#held.has(session) || (this.#failed.get(session)?.until ?? 0) <= now,
    );
    const wanted = usable.slice(0, RESERVED_MAX);
    for (const relay of wanted) if (!this.#held.has(relay.session)) neverRejects(this.#reserve(relay));
    const kept = wanted.filter(({ session }) => this.#held.get(session)?.reserved === true);
    if (kept.length < Math.min(RESERVED_MAX, wanted.length)) return;
    for (const [session, held] of this.#held) if (!wanted.some((relay) => relay.session === session)) drop(held);
  }

  async #reserve(relay: RelayAgent): Promise<void> {
    const held: Held = { reserved: false, dropped: false };
    this.#held.set(relay.session, held);
    try {
      const { socket } = await this.#options.dial(relay);
      held.socket = socket;
      if (!this.#open) return void socket.destroy();
      socket.on('error', () => socket.destroy());
      sendMessage(socket, { type: 'reserve' });
      const said = await withDeadline(socket, MESSAGE_MS, 'timeout', () => receiveMessage(socket));
      if (said.type !== 'reserved') {
        socket.destroy();
        throw new ChannelError('unreachable', `the relay answers ${said.type}`);
      }
      held.reserved = true;
      await this.#called(socket);
      this.#held.delete(relay.session);
      const accepted = this.#accept(socket, relay.session);
      // The next reservation is made without waiting, so that the next caller finds it. Beyond ACCEPTING_MAX handshakes
      // it waits, so that a relay that makes useless calls does not get one reservation after another.
      if (this.#accepting > ACCEPTING_MAX) await accepted;
    } catch {
      this.#held.delete(relay.session);
      if (!held.dropped) this.#fail(relay.session);
    }
    this.look();
  }

  async #accept(socket: Duplex, relay: string): Promise<void> {
    this.#accepting++;
    const good = await this.#options.accept(socket, relay).catch(() => false);
    this.#accepting--;
    if (good) this.#failed.delete(relay);
    else this.#fail(relay);
  }

  /** Resolves when the next bytes are a caller's. */
  async #called(socket: Duplex): Promise<void> {
    const ping = setInterval(() => sendMessage(socket, { type: 'ping' }), PING_MS);
    try {
      for (;;) {
        const said = await withDeadline(socket, PING_MS + PONG_MS, 'timeout', () => receiveMessage(socket));
        if (said.type === 'call') break;
        if (said.type !== 'pong') throw new ChannelError('stranger', `${said.type} from a relay`);
      }
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      clearInterval(ping);
    }
    sendMessage(socket, { type: 'answer' });
  }

  /** A relay that fails is avoided for longer each time, and another relay replaces it. */
  #fail(relay: string): void {
    const before = this.#failed.get(relay);
    const backoff = before?.backoff ?? new Backoff(RETRY, this.#options.random);
    this.#failed.delete(relay);
    this.#failed.set(relay, { backoff, until: performance.now() + backoff.next() });
    const oldest = this.#failed.keys().next().value;
    if (this.#failed.size > FAILED_MAX && oldest !== undefined) this.#failed.delete(oldest);
  }

  /** Idempotent. */
  close(): void {
    this.#open = false;
    clearInterval(this.#timer);
    for (const { socket } of this.#held.values()) socket?.destroy();
  }
}

function drop(held: Held): void {
  held.dropped = true;
  held.socket?.destroy();
}
