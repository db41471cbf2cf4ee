import { createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TokenBucket } from '../../../shared/collections/token-bucket.ts';
import { listenError } from '../../../shared/terminal/listen-error.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { acceptSecure, type ChannelPeer, type Credentials, type ProvenConnection } from './accept-channel.ts';
import { ChannelError } from './channel-error.ts';
import { HANDSHAKE_MS } from './channel-limits.ts';
import { type PrefaceFields, readPreface } from './channel-preface.ts';
import { withDeadline } from './handshake-reads.ts';

export interface ListenerLimits {
  handshakeMs: number;
  /**
   * Maximum number of connections that have not sent a ticket yet. One more closes the oldest, so that slow peers
   * cannot keep quick ones out.
   */
  unauthenticated: number;
  /**
   * Maximum number of connections in the TLS handshake. Tickets are public, so a peer with a copied ticket gets this
   * far.
   */
  handshakes: number;
  handshakesPerSession: number;
  /**
   * Maximum number of tickets checked per second, from all senders together. Each check verifies two signatures (0.15
   * ms).
   */
  ticketsPerSecond: number;
  ticketsBurst: number;
}

const LIMITS: ListenerLimits = {
  handshakeMs: HANDSHAKE_MS,
  unauthenticated: 128,
  handshakes: 256,
  handshakesPerSession: 4,
  ticketsPerSecond: 500,
  ticketsBurst: 1_000,
};

interface ListenerOptions {
  own: Credentials;
  /** Verifies a ticket. Throws if this agent does not accept it; the sender then gets no answer. */
  openTicket(ticket: Uint8Array): ChannelPeer;
  onProven(proven: ProvenConnection): void;
  /** Called with a connection that carries weights. Absent: such connections are refused. */
  onWeights?(proven: ProvenConnection): void;
  /**
   * Called with a relayed connection of an agent that wants to open a direct path; the callee owns the connection.
   * Absent: such connections are refused.
   */
  onPunch?(proven: ProvenConnection): void;
  /**
   * Called with a connection that begins with an HTTP CONNECT, which is still unread. Absent: such connections are
   * refused.
   */
  onConnect?(socket: Socket): void;
  /**
   * Called with a connection that asks for a circuit relay; the callee owns the connection. Absent: such connections
   * are refused.
   */
  onCircuit?(proven: ProvenConnection): void;
  limits?: Partial<ListenerLimits>;
}

interface Handshake {
  socket: Duplex;
  session: string;
}

/** Accepts connections of other agents. Sends nothing before it has received a valid ticket. */
export class Listener {
  readonly #options: ListenerOptions;
  readonly #server: Server;
  readonly #limits: ListenerLimits;
  /** Connections without a ticket yet, oldest first. At most `limits.unauthenticated`. */
  readonly #unauthenticated = new Set<Duplex>();
  /** Connections in the TLS handshake, oldest first. At most `limits.handshakes`. */
  readonly #handshakes = new Set<Handshake>();
  readonly #tickets: TokenBucket;
  #closed = false;

  constructor(options: ListenerOptions) {
    this.#options = options;
    this.#limits = { ...LIMITS, ...options.limits };
    this.#tickets = new TokenBucket(this.#limits.ticketsPerSecond, this.#limits.ticketsBurst, performance.now());
    this.#server = createServer({ noDelay: true }, (socket) => neverRejects(this.#accept(socket)));
  }

  /** Listens. Resolves with the port. */
  open(host: string | undefined, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      const refused = (error: Error) => reject(listenError(error, { host: host ?? '*', port }));
      this.#server.once('error', refused);
      this.#server.listen({ port, ...(host === undefined ? {} : { host }) }, () => {
        this.#server.off('error', refused);
        this.#server.on('error', () => {}); // a connection could not be accepted, for example because too many files are open
        const address = this.#server.address();
        resolve(typeof address === 'object' && address !== null ? address.port : port);
      });
    });
  }

  async #accept(socket: Socket): Promise<void> {
    socket.on('error', () => {}); // an unauthenticated peer's socket error does not concern the agent
    await this.#begin(socket, async () => {
      const first = await this.#preface(socket);
      if (first !== 'connect') return this.#handshake(socket, first);
      if (this.#options.onConnect === undefined) throw new ChannelError('stranger', 'this agent is not a relay');
      return this.#options.onConnect(socket);
    });
  }

  /**
   * Handles a connection that arrived through a relay, or at a port other than the listener's (`relay` undefined). Only
   * the handshake of a channel is allowed on it, and through a relay also that of `punch`. Returns false if the
   * handshake failed. Never rejects.
   */
  acceptThrough(socket: Duplex, relay: string | undefined): Promise<boolean> {
    return this.#begin(socket, async () => {
      const first = await this.#preface(socket);
      if (first === 'connect' || first.circuit)
        throw new ChannelError('stranger', 'a relayed connection must be a channel');
      await this.#handshake(socket, first, relay);
    });
  }

  async #begin(socket: Duplex, act: () => Promise<void>): Promise<boolean> {
    if (this.#closed) {
      socket.destroy();
      return false;
    }
    try {
      await withDeadline(socket, this.#limits.handshakeMs, 'timeout', act);
      return true;
    } catch {
      return false; // the socket is closed; a failed connection has no other effect
    }
  }

  async #handshake(socket: Duplex, first: PrefaceFields, through?: string): Promise<void> {
    const { onProven, onCircuit, onPunch, onWeights } = this.#options;
    const circuit = first.circuit === true;
    if (circuit && onCircuit === undefined) throw new ChannelError('stranger', 'this agent is not a relay');
    const weights = first.purpose === 'weights';
    if (weights && onWeights === undefined) throw new ChannelError('stranger', 'this agent stores no weights');
    const punches = first.purpose === 'punch';
    if (punches && (onPunch === undefined || through === undefined))
      throw new ChannelError('stranger', 'only an agent behind a relay asks for a direct path');
    const peer = this.#known(first.ticket);
    const handshake = { socket, session: peer.session };
    this.#admit(handshake);
    try {
      const proven = await acceptSecure(socket, peer, this.#options.own, first);
      if (this.#closed) throw new ChannelError('broken', 'closing');
      if (circuit) onCircuit?.(proven);
      else if (weights) onWeights?.(proven);
      else if (punches) onPunch?.(proven);
      else onProven(through === undefined ? proven : { ...proven, through });
    } finally {
      this.#handshakes.delete(handshake);
    }
  }

  async #preface(socket: Duplex): Promise<PrefaceFields | 'connect'> {
    this.#unauthenticated.add(socket);
    if (this.#unauthenticated.size > this.#limits.unauthenticated) this.#evictOldest(this.#unauthenticated);
    try {
      return await readPreface(socket);
    } finally {
      this.#unauthenticated.delete(socket);
    }
  }

  #evictOldest(from: Set<Duplex>): void {
    const [oldest] = from;
    if (oldest === undefined) return;
    from.delete(oldest);
    oldest.destroy();
  }

  #known(ticket: Uint8Array): ChannelPeer {
    if (!this.#tickets.take(1, performance.now())) throw new ChannelError('full', 'too many tickets to check');
    try {
      return this.#options.openTicket(ticket);
    } catch (error) {
      throw new ChannelError('stranger', 'the ticket is not valid', { cause: error });
    }
  }

  #admit(handshake: Handshake): void {
    const same = [...this.#handshakes].filter(({ session }) => session === handshake.session);
    const oldest = same.length >= this.#limits.handshakesPerSession ? same[0] : undefined;
    if (oldest !== undefined) {
      this.#handshakes.delete(oldest);
      oldest.socket.destroy();
    }
    if (this.#handshakes.size >= this.#limits.handshakes) throw new ChannelError('full', 'too many handshakes');
    this.#handshakes.add(handshake);
  }

  /** Number of connections that are not authenticated yet. A flood raises it. */
  get pending(): number {
    return this.#unauthenticated.size + this.#handshakes.size;
  }

  /** Stops listening. Open channels stay open. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#server.close();
    for (const socket of this.#unauthenticated) socket.destroy();
    for (const { socket } of this.#handshakes) socket.destroy();
  }
}
