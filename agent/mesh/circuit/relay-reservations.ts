import type { Duplex } from 'node:stream';
import { Backoff } from '../../../shared/timing/backoff.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import type { ProvenConnection } from '../channel/accept-channel.ts';
import { ChannelError } from '../channel/channel-error.ts';
import { withDeadline } from '../channel/handshake-reads.ts';
import { MESSAGE_MS, PING_MS, PONG_MS, receiveMessage, sendMessage } from './circuit-messages.ts';
import { RESERVED_MAX, type RelayAgent } from './relay-choice.ts';

/** Interval at which the replica is searched for relays, which come and go with agents. */
const POLL_MS = 5_000;
const RETRY = { minMs: 2_000, maxMs: 120_000 };

/** Maximum number of remembered failures. */
const FAILED_MAX = 256;

/** Maximum number of concurrent handshakes through relays; others wait. */
const ACCEPTING_MAX = 16;

interface ReservationsOptions {
  /** Returns the relays at which callers search this agent, best first. */
  relays(): RelayAgent[];
  /** Opens a connection for circuits, authenticated at both ends. Rejects if that fails. */
  dial(relay: RelayAgent): Promise<ProvenConnection>;
  /** Handles a caller's connection, which begins now. Owns the socket. False if it did not become a channel. */
  accept(socket: Duplex, relay: string): Promise<boolean>;
  random(): number;
}

interface Held {
  socket?: Duplex;
  reserved: boolean;
  /** True if this agent ended the reservation in favor of a better relay, so the relay has not failed. */
  dropped: boolean;
}

interface Failed {
  backoff: Backoff;
  until: number;
}

/**
 * Keeps this agent reachable for agents that cannot dial it: it holds a reservation at each of the first RESERVED_MAX
 * relays that answer.
 */
export class Reservations {
  readonly #options: ReservationsOptions;
  /** Reservations by relay: at most RESERVED_MAX, and as many again while better relays replace them. */
  readonly #held = new Map<string, Held>();
  /** Relays that failed recently, oldest first. At most FAILED_MAX. */
  readonly #failed = new Map<string, Failed>();
  /** Number of calls whose handshake is unfinished. */
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

  /** Reserves at the first RESERVED_MAX usable relays. When they have reserved, ends the other reservations. */
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
      const message = await withDeadline(socket, MESSAGE_MS, 'timeout', () => receiveMessage(socket));
      if (message.type !== 'reserved') {
        socket.destroy();
        throw new ChannelError('unreachable', `the relay answered ${message.type}`);
      }
      held.reserved = true;
      await this.#called(socket);
      this.#held.delete(relay.session);
      const accepted = this.#accept(socket, relay.session);
      // Reserve again without waiting for this call's handshake, so that the next caller finds a reservation. But wait
      // if more than ACCEPTING_MAX handshakes are unfinished. Otherwise a relay that makes useless calls would get one
      // reservation after another.
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

  /** Resolves when the next bytes come from a caller. */
  async #called(socket: Duplex): Promise<void> {
    const ping = setInterval(() => sendMessage(socket, { type: 'ping' }), PING_MS);
    try {
      for (;;) {
        const message = await withDeadline(socket, PING_MS + PONG_MS, 'timeout', () => receiveMessage(socket));
        if (message.type === 'call') break;
        if (message.type !== 'pong')
          throw new ChannelError('stranger', `unexpected message "${message.type}" from a relay`);
      }
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      clearInterval(ping);
    }
    sendMessage(socket, { type: 'answer' });
  }

  /** Avoids the relay that failed, for longer each time. Another relay replaces it. */
  #fail(relay: string): void {
    const before = this.#failed.get(relay);
    const backoff = before?.backoff ?? new Backoff(RETRY, this.#options.random);
    this.#failed.delete(relay);
    this.#failed.set(relay, { backoff, until: performance.now() + backoff.next() });
    const oldest = this.#failed.keys().next().value;
    if (this.#failed.size > FAILED_MAX && oldest !== undefined) this.#failed.delete(oldest);
  }

  /** Gives up all reservations. Idempotent. */
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
