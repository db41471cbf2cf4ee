/**
 * The circuit relay: keeps the reservations of callees, and joins callers to them. Runs only on agents with
 * `--offer-relay`.
 */
import type { Duplex } from 'node:stream';
import { TokenBucket } from '../../../shared/collections/token-bucket.ts';
import type { ChannelPeer, ProvenConnection } from '../channel/accept-channel.ts';
import { ChannelError } from '../channel/channel-error.ts';
import { withDeadline } from '../channel/handshake-reads.ts';
import { type CircuitRefusal, MESSAGE_MS, PING_MS, PONG_MS, receiveMessage, sendMessage } from './circuit-messages.ts';
import { joinSockets, RateLimit } from './join-sockets.ts';

export interface CircuitLimits {
  /** Maximum number of reservations, which are idle sockets of callees, one per session. */
  reservations: number;
  /** Maximum number of circuits, each with two sockets. */
  circuits: number;
  circuitsPerSession: number;
  /** Calls that a session may make per second, on average. After each call the callee must reserve again. */
  callsPerSecond: number;
  callsBurst: number;
  /**
   * Maximum bytes of one circuit, both directions together. A circuit that exceeds them ends, and its agents connect
   * again.
   */
  circuitBytes: number;
  circuitBytesPerSecond: number;
  relayBytesPerSecond: number;
  /**
   * Time after which a circuit without bytes ends. It is longer than the interval of gossip, so that a channel in use
   * does not end.
   */
  idleMs: number;
  /**
   * Maximum wait for a callee that was called a moment ago and therefore has no reservation. It needs one handshake to
   * reserve again.
   */
  returnMs: number;
}

/**
 * Defaults. A relay uses the spare capacity of a login node: 32 MiB/s are about 10,000 streams of tokens, and a tenth
 * of a core.
 */
const CIRCUIT_LIMITS: CircuitLimits = {
  reservations: 1024,
  circuits: 256,
  circuitsPerSession: 16,
  callsPerSecond: 1,
  callsBurst: 32,
  circuitBytes: 4 * 1024 ** 3,
  circuitBytesPerSecond: 16 * 1024 * 1024,
  relayBytesPerSecond: 32 * 1024 * 1024,
  idleMs: 120_000,
  returnMs: 2_000,
};

/** Interval of checks for evicted sessions. Their reservations and circuits end then. */
const SWEEP_MS = 5_000;

/** Maximum time for which an agent that asked for its outside address stays connected. */
const OBSERVED_MS = 30_000;

interface CircuitRelayOptions {
  /** True if the peer is in the registry with a ticket that is currently valid. */
  admits(peer: ChannelPeer): boolean;
  limits?: Partial<CircuitLimits>;
}

/** A connection, and the address of its other end as this host sees it. */
type TakenConnection = Pick<ProvenConnection, 'peer'> & { socket: ObservableSocket };
type ObservableSocket = Duplex & { remoteAddress?: string | undefined; remotePort?: number | undefined };

interface Reservation {
  peer: ChannelPeer;
  socket: Duplex;
  /** Called when the callee has answered. Set by the call that uses this reservation. */
  answered?: () => void;
}

interface Circuit {
  ends: readonly [ChannelPeer, ChannelPeer];
  end(): void;
}

export class CircuitRelay {
  readonly #options: CircuitRelayOptions;
  readonly #limits: CircuitLimits;
  /** Reservations by session. At most `limits.reservations`. */
  readonly #reservations = new Map<string, Reservation>();
  /** Open circuits, at most `limits.circuits`. A circuit counts even before its callee has answered. */
  readonly #circuits = new Set<Circuit>();
  /** Time of the last call to each session, oldest first. At most `limits.reservations`. */
  readonly #called = new Map<string, number>();
  /** Calls that wait for a callee to reserve again. At most `limits.circuits`. */
  readonly #awaited = new Set<{ session: string; ring(): void }>();
  /** Budget of calls of each session, oldest first. At most `limits.reservations`. */
  readonly #quotas = new Map<string, TokenBucket>();
  /** Connections of agents that asked for their outside address. At most `limits.circuits`. */
  #observing = 0;
  readonly #pace: RateLimit;
  readonly #sweep: NodeJS.Timeout;
  /** Totals since this agent started. */
  readonly carried = { circuits: 0, bytes: 0 };
  #closed = false;

  constructor(options: CircuitRelayOptions) {
    this.#options = options;
    this.#limits = { ...CIRCUIT_LIMITS, ...options.limits };
    this.#pace = new RateLimit(this.#limits.relayBytesPerSecond, performance.now());
    this.#sweep = setInterval(() => this.#closeUnadmitted(), SWEEP_MS).unref();
  }

  get open(): number {
    return this.#circuits.size;
  }

  get reserved(): number {
    return this.#reservations.size;
  }

  holds(session: string): boolean {
    return this.#reservations.has(session);
  }

  /**
   * Handles a connection with CIRCUIT in its preface, authenticated at both ends. Owns the connection. Never rejects.
   */
  async take({ socket, peer }: TakenConnection): Promise<void> {
    socket.on('error', () => socket.destroy());
    try {
      const message = await withDeadline(socket, MESSAGE_MS, 'timeout', () => receiveMessage(socket));
      if (this.#closed || !this.#options.admits(peer)) return this.#refuse(socket, 'stranger');
      if (message.type === 'observe') return this.#observe(socket);
      if (message.type === 'reserve') return await this.#reserve({ peer, socket });
      if (message.type === 'connect') return await this.#connect(socket, peer, message.session);
      socket.destroy();
    } catch {
      socket.destroy(); // a malformed message ends only its connection
    }
  }

  /** Tells an agent its outside address. The connection stays, and with it the mapping of the agent's NAT. */
  #observe(socket: ObservableSocket): void {
    const host = socket.remoteAddress?.replace(/^::ffff:(?=\d)/, '');
    if (host === undefined || socket.remotePort === undefined || this.#observing >= this.#limits.circuits)
      return this.#refuse(socket, 'full');
    this.#observing++;
    const ended = setTimeout(() => socket.destroy(), OBSERVED_MS);
    socket.once('close', () => {
      this.#observing--;
      clearTimeout(ended);
    });
    socket.resume();
    sendMessage(socket, { type: 'observed', address: `${host}:${socket.remotePort}` });
  }

  #refuse(socket: Duplex, why: CircuitRefusal): void {
    sendMessage(socket, { type: 'refused', why });
    socket.end();
    setTimeout(() => socket.destroy(), MESSAGE_MS).unref();
  }

  async #reserve(reservation: Reservation): Promise<void> {
    const { socket, peer } = reservation;
    const before = this.#reservations.get(peer.session);
    if (before === undefined && this.#reservations.size >= this.#limits.reservations)
      return this.#refuse(socket, 'full');
    before?.socket.destroy();
    socket.on('close', () => this.#drop(reservation));
    sendMessage(socket, { type: 'reserved' });
    this.#offer(reservation);
    for (;;) {
      const message = await withDeadline(socket, PING_MS + PONG_MS, 'timeout', () => receiveMessage(socket));
      if (message.type === 'answer' && reservation.answered !== undefined) return reservation.answered();
      if (message.type !== 'ping')
        throw new ChannelError('stranger', `unexpected message "${message.type}" from a callee`);
      // No pong is sent after `call`, because from then on the socket carries only the caller's bytes.
      if (reservation.answered === undefined) sendMessage(socket, { type: 'pong' });
    }
  }

  /**
   * Gives the reservation to a waiting call, or keeps it for the next call. Only one caller gets it, because a second
   * `call` on its socket would be mixed with the first caller's bytes.
   */
  #offer(reservation: Reservation): void {
    const { session } = reservation.peer;
    this.#reservations.set(session, reservation);
    for (const waiting of this.#awaited) if (waiting.session === session) return waiting.ring();
  }

  /** Call when the caller that took this reservation did not use it. */
  #giveBack(reservation: Reservation): void {
    const { peer, socket } = reservation;
    if (socket.destroyed || this.#closed || this.#reservations.has(peer.session)) socket.destroy();
    else this.#offer(reservation);
  }

  #drop(reservation: Reservation): void {
    const { session } = reservation.peer;
    if (this.#reservations.get(session) === reservation) this.#reservations.delete(session);
  }

  async #connect(socket: Duplex, caller: ChannelPeer, session: string): Promise<void> {
    if (!this.#mayCall(caller.session)) return this.#refuse(socket, 'busy');
    if (this.#circuits.size >= this.#limits.circuits) return this.#refuse(socket, 'full');
    const reservation = await this.#reservationOf(session);
    if (reservation === undefined) return this.#refuse(socket, 'absent');
    const of = (end: string) => [...this.#circuits].filter(({ ends }) => ends.some((peer) => peer.session === end));
    const full = [caller.session, session].some((end) => of(end).length >= this.#limits.circuitsPerSession);
    if (socket.destroyed || full || this.#circuits.size >= this.#limits.circuits) {
      this.#giveBack(reservation);
      return this.#refuse(socket, 'full');
    }
    const end = () => {
      socket.destroy();
      reservation.socket.destroy();
    };
    const circuit: Circuit = { ends: [caller, reservation.peer], end };
    this.#circuits.add(circuit);
    try {
      await this.#call(reservation);
      if (socket.destroyed || this.#closed) throw new ChannelError('broken', 'the caller has disconnected');
      sendMessage(socket, { type: 'connected' });
      this.#join(circuit, socket, reservation.socket);
    } catch {
      this.#circuits.delete(circuit);
      reservation.socket.destroy();
      if (!socket.destroyed) this.#refuse(socket, 'absent');
    }
  }

  #join(circuit: Circuit, caller: Duplex, callee: Duplex): void {
    const { circuitBytes, circuitBytesPerSecond, idleMs } = this.#limits;
    this.carried.circuits++;
    const joined = joinSockets(caller, callee, {
      paces: [new RateLimit(circuitBytesPerSecond, performance.now()), this.#pace],
      maxBytes: circuitBytes,
      idleMs,
      onBytes: (bytes) => {
        this.carried.bytes += bytes;
      },
      onEnd: () => void this.#circuits.delete(circuit),
    });
    circuit.end = joined.end;
  }

  /**
   * Calls, from this agent, a session that has a reservation here.
   * @throws ChannelError `unreachable` if it has none
   */
  async callOwn(session: string): Promise<Duplex> {
    const reservation = this.#claim(session);
    if (reservation === undefined) throw new ChannelError('unreachable', `${session} does not accept circuits here`);
    await this.#call(reservation);
    return reservation.socket;
  }

  /** Sends `call` and resolves when the callee has answered. All later bytes of its socket belong to the circuit. */
  async #call(reservation: Reservation): Promise<void> {
    const { peer, socket } = reservation;
    await new Promise<void>((resolve, reject) => {
      const fail = () => reject(new ChannelError('unreachable', `${peer.session} does not answer`));
      const timer = setTimeout(() => {
        socket.destroy();
        fail();
      }, MESSAGE_MS);
      const gone = () => {
        clearTimeout(timer);
        fail();
      };
      socket.once('close', gone);
      reservation.answered = () => {
        clearTimeout(timer);
        socket.off('close', gone);
        resolve();
      };
      sendMessage(socket, { type: 'call' });
      if (socket.destroyed) gone();
    });
  }

  /** Removes the session's reservation, so that no other caller gets it. */
  #claim(session: string): Reservation | undefined {
    const there = this.#reservations.get(session);
    if (there === undefined) return undefined;
    this.#drop(there);
    this.#note(this.#called, session, performance.now());
    return there;
  }

  /** Claims the session's reservation. If the session was called a moment ago, waits for its next one. */
  #reservationOf(session: string): Promise<Reservation | undefined> | Reservation | undefined {
    const there = this.#claim(session);
    const calledAt = this.#called.get(session) ?? Number.NEGATIVE_INFINITY;
    const soon = performance.now() - calledAt < this.#limits.returnMs && this.#awaited.size < this.#limits.circuits;
    if (there !== undefined || !soon) return there;
    return new Promise((resolve) => {
      const ring = () => {
        clearTimeout(timer);
        this.#awaited.delete(waiting);
        resolve(this.#claim(session));
      };
      const timer = setTimeout(ring, this.#limits.returnMs);
      const waiting = { session, ring };
      this.#awaited.add(waiting);
    });
  }

  #mayCall(session: string): boolean {
    const now = performance.now();
    const { callsPerSecond, callsBurst } = this.#limits;
    const quota = this.#quotas.get(session) ?? new TokenBucket(callsPerSecond, callsBurst, now);
    this.#note(this.#quotas, session, quota);
    return quota.take(1, now);
  }

  #note<T>(map: Map<string, T>, session: string, value: T): void {
    map.delete(session);
    map.set(session, value);
    const oldest = map.keys().next().value;
    if (map.size > this.#limits.reservations && oldest !== undefined) map.delete(oldest);
  }

  #closeUnadmitted(): void {
    const { admits } = this.#options;
    for (const circuit of [...this.#circuits]) if (!circuit.ends.every((peer) => admits(peer))) circuit.end();
    for (const { peer, socket } of [...this.#reservations.values()]) if (!admits(peer)) socket.destroy();
  }

  /** Closes all sockets. Idempotent. */
  close(): void {
    this.#closed = true;
    clearInterval(this.#sweep);
    for (const { socket } of [...this.#reservations.values()]) socket.destroy();
    for (const circuit of [...this.#circuits]) circuit.end();
  }
}
