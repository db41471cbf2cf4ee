import { TokenBucket } from '../../shared/collections/token-bucket.ts';
import { fromBase64url } from '../../shared/lattice/base64url.ts';
import { hex } from '../../shared/lattice/byte-codec.ts';
import { decodeTicket, TICKET_MAX_BYTES, type Ticket } from '../../shared/lattice/ticket.ts';
import { closeReason } from '../../shared/wire/close-codes.ts';
import { encodeFrame } from '../../shared/wire/frame-codec.ts';
import {
  CIRCUIT_STEP_BYTES,
  CIRCUIT_WINDOW_BYTES,
  CONNECTED_TEXT,
  circuitCost,
  MORE_TEXT,
  READ_TEXT,
} from '../../shared/wire/gateway-circuit.ts';
import { WireError } from '../../shared/wire/wire-error.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectSocket } from '../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { AUDIENCE_HEADER, readHello, verifyHello } from '../registry/proven-sockets.ts';
import { TICKET_HEADER } from '../registry/verify-agent-ticket.ts';

/** Header with the callee's session, sent by the caller. */
export const CALLEE_HEADER = 'x-otela-callee';

/** Maximum time from the caller's upgrade to the callee's proof. */
const MEET_MS = 10_000;
/**
 * Bounds on the traffic of circuits, which a gateway carries in addition to its own requests: bytes per circuit, and
 * bytes per second of one circuit and of all circuits. Both directions count together.
 */
const CIRCUIT_BYTES = 4 * 1024 ** 3;
const CIRCUIT_BYTES_PER_S = 16 * 1024 * 1024;
const GATEWAY_BYTES_PER_S = 32 * 1024 * 1024;
/** A circuit without a message for this time is closed. Even idle agents gossip more often. */
const IDLE_MS = 120_000;
/** Maximum life of a circuit. Then both ends connect again, and a session that has ended meanwhile is refused. */
const LIFE_MS = 60 * 60_000;

/**
 * Maximum callers that have not yet proved that they own their ticket's session. Tickets are public, so a peer may
 * present the tickets of other sessions. Above the maximum, the circuit of the oldest such caller is closed: an honest
 * caller sends its proof with its next message and is not affected.
 */
const UNPROVEN_MAX = 512;
const CIRCUITS_MAX = 256;
const CIRCUITS_PER_SESSION_MAX = 16;
/** Maximum calls per second of one caller. Each call sends a frame to its callee. */
const CALLS_PER_S = 1;
const CALLS_BURST = 32;
/**
 * Maximum calls per second to one callee, from all callers together: half of the rate at which a callee closes its
 * tunnel (`FRAME_LIMITS.circuit`).
 */
const RINGS_PER_S = 10;
const RINGS_BURST = 100;
const CALLERS_MAX = 4_096;

/** Open circuits of this process with their sessions. Only hosts that run all objects in one process have circuits. */
const open = new Map<CircuitObject, readonly string[]>();
/** Callers without a proof, oldest first, at most UNPROVEN_MAX. */
const unproven = new Set<CircuitObject>();
/** Rate limits of callers and callees by session, oldest first, at most CALLERS_MAX each. */
const calls = new Map<string, TokenBucket>();
const rings = new Map<string, TokenBucket>();
const everything = new TokenBucket(GATEWAY_BYTES_PER_S, GATEWAY_BYTES_PER_S, steadyNow());

interface End {
  readonly socket: ObjectSocket;
  readonly ticket: Ticket;
  readonly audience: string;
  readonly nonce: Uint8Array;
  proven: boolean;
  /** Bytes (as `circuitCost` counts them) sent to this end since the last `read` message to it. */
  unasked: number;
  /**
   * Nonces of `read` messages that this end has not answered, oldest first. CIRCUIT_WINDOW_BYTES bounds their number.
   */
  readonly asked: string[];
}

/**
 * One circuit: the sockets of a caller and a callee. The bytes between them are encrypted from end to end by TLS. The
 * circuit ends when one of the sockets closes.
 */
export class CircuitObject extends GatewayObject {
  #callee = '';
  #caller: End | undefined;
  #called: End | undefined;
  #joined = false;
  #bytes = 0;
  readonly #pace = new TokenBucket(CIRCUIT_BYTES_PER_S, CIRCUIT_BYTES_PER_S, steadyNow());
  #idle: () => void = () => {};
  /**
   * Functions that cancel the timers of this circuit. Called at its end, so that no timer keeps a closed circuit in
   * memory.
   */
  readonly #timers: (() => void)[] = [];
  #finished = false;

  /** Accepts the caller, which names its callee, and then the callee. */
  fetch(request: Request): Response {
    const bytes = fromBase64url(request.headers.get(TICKET_HEADER) ?? '', TICKET_MAX_BYTES) ?? new Uint8Array();
    const ticket = decodeTicket(bytes, workerdCrypto); // The ticket was verified when the socket was accepted.
    const callee = request.headers.get(CALLEE_HEADER);
    const isCaller = callee !== null;
    if (this.#finished || (isCaller ? this.#caller !== undefined : this.#called !== undefined || this.#callee === ''))
      return new Response('there is no such circuit', { status: 404 });
    if (!isCaller && ticket.session !== this.#callee)
      return new Response('the circuit belongs to another callee', { status: 403 });
    const { socket, response } = this.ctx.sockets.accept();
    const end: End = {
      socket,
      ticket,
      audience: request.headers.get(AUDIENCE_HEADER) ?? '',
      nonce: crypto.getRandomValues(new Uint8Array(32)),
      proven: false,
      unasked: 0,
      asked: [],
    };
    if (isCaller) {
      this.#callee = callee;
      this.#caller = end;
      unproven.add(this);
      this.#timers.push(
        this.ctx.clock.after(MEET_MS, () => this.#joined || this.#end('the callee did not connect')),
        this.ctx.clock.after(LIFE_MS, () => this.#end('the circuit reached its maximum duration')),
      );
    } else this.#called = end;
    socket.send(encodeFrame({ type: 'challenge', nonce: end.nonce }));
    const [oldest] = unproven;
    if (oldest !== undefined && unproven.size > UNPROVEN_MAX)
      oldest.#end('too many callers have not proved their session');
    return response;
  }

  webSocketMessage(socket: ObjectSocket, message: string | Uint8Array): void {
    const end = [this.#caller, this.#called].find((one) => one?.socket === socket);
    if (end === undefined || this.#finished) return;
    try {
      if (!end.proven) this.#prove(end, message);
      else if (!this.#joined) throw new WireError('bad_state', 'an end sent bytes before the other end had connected');
      else this.#pass(end, message);
    } catch (error) {
      if (!(error instanceof WireError) && !(error instanceof RangeError)) throw error;
      this.#end(error.message);
    }
  }

  #prove(end: End, message: string | Uint8Array): void {
    const hello = readHello(message);
    if (hello === undefined || !verifyHello(end.ticket, end, hello))
      throw new WireError('bad_state', 'the proof is not signed with the key of the ticket’s session');
    end.proven = true;
    unproven.delete(this);
    if (end === this.#caller) return this.#call(end.ticket.session);
    this.#joined = true;
    for (const one of [this.#caller, this.#called]) one?.socket.send(CONNECTED_TEXT);
    this.#received();
  }

  #call(caller: string): void {
    const now = steadyNow();
    const ends = [caller, this.#callee];
    const of = (session: string) => [...open.values()].filter((one) => one.includes(session)).length;
    const full = open.size >= CIRCUITS_MAX || ends.some((session) => of(session) >= CIRCUITS_PER_SESSION_MAX);
    const may = quotaOf(calls, caller, () => new TokenBucket(CALLS_PER_S, CALLS_BURST, now)).take(1, now);
    const rung = () => quotaOf(rings, this.#callee, () => new TokenBucket(RINGS_PER_S, RINGS_BURST, now)).take(1, now);
    if (full || !may || !rung())
      return this.#end(
        'this gateway carries its maximum number of circuits, or one of the two agents has too many calls',
      );
    open.set(this, ends);
    const called = this.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).call(this.#callee, this.ctx.name);
    this.ctx.waitUntil(
      called.then(
        (there) => there || this.#end(`${this.#callee} is not connected here`),
        () => this.#end('the registry does not answer'),
      ),
    );
  }

  #pass(from: End, message: string | Uint8Array): void {
    const to = from === this.#caller ? this.#called : this.#caller;
    if (to === undefined) return;
    this.#received();
    if (typeof message === 'string') return this.#onText(from, to, message);
    this.#bytes += message.byteLength;
    to.unasked += circuitCost(message.byteLength);
    if (to.unasked + to.asked.length * CIRCUIT_STEP_BYTES > CIRCUIT_WINDOW_BYTES + CIRCUIT_STEP_BYTES)
      throw new WireError('too_large', 'an end sent more bytes than it was granted');
    if (this.#bytes > CIRCUIT_BYTES) return this.#end('the circuit reached its maximum number of bytes');
    to.socket.send(message);
    for (; to.unasked >= CIRCUIT_STEP_BYTES; to.unasked -= CIRCUIT_STEP_BYTES) {
      const nonce = hex(crypto.getRandomValues(new Uint8Array(8)));
      to.asked.push(nonce);
      to.socket.send(`read ${nonce}`);
    }
  }

  /**
   * Handles the answer to a `read` message: `from` has read another CIRCUIT_STEP_BYTES of what `to` sent. So `to` may
   * send as many more, at the rates of the circuit and of the gateway.
   */
  #onText(from: End, to: End, text: string): void {
    const nonce = READ_TEXT.exec(text)?.[1];
    if (nonce === undefined || from.asked[0] !== nonce)
      throw new WireError('bad_state', 'an end sent an unexpected message');
    from.asked.shift();
    this.#grant(to);
  }

  #grant(to: End): void {
    if (this.#finished) return;
    const now = steadyNow();
    const waits = [this.#pace, everything].map((pace) => (pace.take(0, now) ? pace.waitMs(CIRCUIT_STEP_BYTES) : 0));
    const waitMs = Math.max(...waits);
    if (waitMs > 0) return void this.ctx.clock.after(Math.ceil(waitMs), () => this.#grant(to));
    this.#pace.take(CIRCUIT_STEP_BYTES, now);
    everything.take(CIRCUIT_STEP_BYTES, now);
    to.socket.send(MORE_TEXT);
  }

  #received(): void {
    this.#idle();
    if (this.#finished) return;
    this.#idle = this.ctx.clock.after(IDLE_MS, () => this.#end('the circuit was idle for two minutes'));
  }

  webSocketClose(socket: ObjectSocket): void {
    if (socket === this.#caller?.socket || socket === this.#called?.socket) this.#end('the other end has disconnected');
  }

  webSocketError(socket: ObjectSocket): void {
    this.webSocketClose(socket);
  }

  #end(why: string): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#idle();
    for (const cancel of this.#timers) cancel();
    open.delete(this);
    unproven.delete(this);
    for (const end of [this.#caller, this.#called]) end?.socket.close(1000, closeReason(why));
  }
}

function quotaOf(quotas: Map<string, TokenBucket>, session: string, make: () => TokenBucket): TokenBucket {
  const quota = quotas.get(session) ?? make();
  quotas.delete(session);
  quotas.set(session, quota);
  const oldest = quotas.keys().next().value;
  if (quotas.size > CALLERS_MAX && oldest !== undefined) quotas.delete(oldest);
  return quota;
}
