import type { TokenBucket } from '../../shared/collections/token-bucket.ts';
import { hex } from '../../shared/lattice/byte-codec.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
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
import type { Clock, ObjectSocket } from '../platform/object-context.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { readHello, verifyHello } from '../registry/proven-sockets.ts';
import type { CircuitLimits } from './circuit-limits.ts';

/** Maximum time from the caller's upgrade to the callee's proof. */
const MEET_MS = 10_000;
/** Maximum bytes of a circuit. Both directions count together. */
const CIRCUIT_BYTES = 4 * 1024 ** 3;
/** A circuit without a message for this time is closed. Even idle agents gossip more often. */
const IDLE_MS = 120_000;
/** Maximum life of a circuit. Then both ends connect again, and a session that has ended meanwhile is refused. */
const LIFE_MS = 60 * 60_000;

/** A socket, and the ticket that was verified when it was accepted. */
export interface CircuitEnd {
  readonly socket: ObjectSocket;
  readonly ticket: Ticket;
  readonly audience: string;
}

export interface CircuitHost {
  readonly clock: Pick<Clock, 'after'>;
  readonly limits: CircuitLimits<Circuit>;
  /** Notifies the callee that a caller waits. False: the callee has no tunnel here. */
  callCallee(callee: string): Promise<boolean>;
  waitUntil(work: Promise<unknown>): void;
  /** Called once, when the circuit has ended, with its sockets. */
  onEnd(sockets: readonly ObjectSocket[]): void;
}

interface End extends CircuitEnd {
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
export class Circuit {
  readonly callee: string;
  readonly #host: CircuitHost;
  readonly #caller: End;
  #called: End | undefined;
  #joined = false;
  #bytes = 0;
  readonly #pace: TokenBucket;
  #idle: () => void = () => {};
  /**
   * Functions that cancel the timers of this circuit. Called at its end, so that no timer keeps a closed circuit in
   * memory.
   */
  readonly #timers: (() => void)[] = [];
  #finished = false;

  constructor(caller: CircuitEnd, callee: string, host: CircuitHost) {
    this.callee = callee;
    this.#host = host;
    this.#pace = host.limits.newPace(steadyNow());
    this.#caller = this.#challenge(caller);
    this.#timers.push(
      host.clock.after(MEET_MS, () => this.#joined || this.#end('the callee did not connect')),
      host.clock.after(LIFE_MS, () => this.#end('the circuit reached its maximum duration')),
    );
    const oldest = host.limits.addUnproven(this);
    if (oldest !== undefined) oldest.#end('too many callers have not proved their session');
  }

  get hasCallee(): boolean {
    return this.#called !== undefined;
  }

  addCallee(end: CircuitEnd): void {
    this.#called = this.#challenge(end);
  }

  #challenge(end: CircuitEnd): End {
    const nonce = crypto.getRandomValues(new Uint8Array(32));
    end.socket.send(encodeFrame({ type: 'challenge', nonce }));
    return { ...end, nonce, proven: false, unasked: 0, asked: [] };
  }

  onMessage(socket: ObjectSocket, message: string | Uint8Array): void {
    const end = this.#caller.socket === socket ? this.#caller : this.#called;
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
    this.#host.limits.removeUnproven(this);
    if (end === this.#caller) return this.#call();
    this.#joined = true;
    for (const one of [this.#caller, end]) send(one, CONNECTED_TEXT);
    this.#received();
  }

  #call(): void {
    if (!this.#host.limits.open(this, this.#caller.ticket.session, this.callee, steadyNow()))
      return this.#end(
        'this gateway carries its maximum number of circuits, or one of the two agents has too many calls',
      );
    this.#host.waitUntil(
      this.#host.callCallee(this.callee).then(
        (there) => there || this.#end(`${this.callee} is not connected here`),
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
    send(to, message);
    for (; to.unasked >= CIRCUIT_STEP_BYTES; to.unasked -= CIRCUIT_STEP_BYTES) {
      const nonce = hex(crypto.getRandomValues(new Uint8Array(8)));
      to.asked.push(nonce);
      send(to, `read ${nonce}`);
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
    const waitMs = this.#host.limits.waitMs(this.#pace, CIRCUIT_STEP_BYTES, steadyNow());
    if (waitMs > 0) return void this.#host.clock.after(Math.ceil(waitMs), () => this.#grant(to));
    send(to, MORE_TEXT);
  }

  #received(): void {
    this.#idle();
    if (this.#finished) return;
    this.#idle = this.#host.clock.after(IDLE_MS, () => this.#end('the circuit was idle for two minutes'));
  }

  /** Call when one of its two sockets has closed. */
  onClose(): void {
    this.#end('the other end has disconnected');
  }

  #end(why: string): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#idle();
    for (const cancel of this.#timers) cancel();
    this.#host.limits.close(this);
    const sockets = [this.#caller.socket, ...(this.#called === undefined ? [] : [this.#called.socket])];
    for (const socket of sockets) socket.close(1000, closeReason(why));
    this.#host.onEnd(sockets);
  }
}

const OPEN = 1;

/** If the socket has closed, its event follows and ends the circuit. workerd throws if a closed socket is written. */
function send({ socket }: CircuitEnd, message: string | Uint8Array): void {
  if (socket.readyState === OPEN) socket.send(message);
}
