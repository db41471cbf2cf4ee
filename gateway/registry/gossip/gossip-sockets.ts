import { toBase64url } from '../../../shared/lattice/base64url.ts';
import type { Ticket } from '../../../shared/lattice/ticket.ts';
import { CLOSE_CODES } from '../../../shared/wire/close-codes.ts';
import { encodeFrame, readFrames } from '../../../shared/wire/frame-codec.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { MESSAGE_MAX_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { ReadConfirmations } from '../../../shared/wire/read-confirmations.ts';
import { WireError } from '../../../shared/wire/wire-error.ts';
import type { ObjectSocket, ObjectSockets } from '../../platform/object-context.ts';
import { steadyNow } from '../../platform/steady-clock.ts';
import { closeSocket, ProvenSockets, type SocketAttachment, ticketOf } from '../proven-sockets.ts';

/** Maximum sockets of delegates: three per cluster, and a few more while a cluster is split. */
const SOCKETS_MAX = 1024;
/** Maximum sockets of agents that have not proved their session yet. Beyond it the oldest is closed. */
const CHALLENGED_MAX = 128;
/**
 * Maximum sockets of one session that have not proved it. Tickets are public: without this bound, connections with one
 * copied ticket would displace the sockets of all agents that are about to answer the challenge.
 */
const CHALLENGED_PER_SESSION = 4;
/**
 * A socket without pings for this time is dead, even if no close event arrived. Agents ping every 15 s, which does not
 * wake the object.
 */
const SILENCE_MS = 60_000;
/** Maximum peers that broke a rule and are refused for a while. */
const BANNED_MAX = 1024;
const FLOOD_BAN_MS = 60_000;

interface Delegate {
  readonly socket: ObjectSocket;
  readonly session: string;
  readonly attachment: SocketAttachment;
  readonly meter: FrameMeter;
  readonly receipts: ReadConfirmations;
}

interface GossipSocketEvents {
  opened(session: string): void;
  closed(session: string): void;
  message(session: string, bytes: Uint8Array): void;
}

/** The sockets of delegates, which hibernate with their object. Each session has only its newest socket here. */
export class GossipSockets extends ProvenSockets<Delegate> {
  readonly #gateway: string;
  readonly #events: GossipSocketEvents;
  readonly #banned = new Map<string, number>();

  constructor(sockets: ObjectSockets, gateway: string, events: GossipSocketEvents) {
    super(sockets, { challenged: CHALLENGED_MAX, challengedPerSession: CHALLENGED_PER_SESSION });
    this.#gateway = gateway;
    this.#events = events;
    for (const socket of sockets.survivors()) {
      const attachment = sockets.noted(socket) as SocketAttachment;
      this.restore(delegateOf(socket, ticketOf(attachment).session, attachment));
    }
  }

  protected override onGone({ session }: Delegate): void {
    this.#events.closed(session);
  }

  /** Accepts a socket. The Worker has already verified the ticket. */
  accept({ session, bytes }: Ticket, audience: string, now: number): Response {
    const until = this.#banned.get(session);
    if (until !== undefined && until > now)
      return refusal(429, 'This session violated the gossip protocol; try again later.');
    if (this.sessions.length >= SOCKETS_MAX)
      return refusal(503, 'This gateway already has its maximum number of delegates.');
    return this.challenge({ session, ticket: toBase64url(bytes), audience }, (socket, attachment) =>
      delegateOf(socket, session, attachment),
    );
  }

  receive(socket: ObjectSocket, message: string | Uint8Array): void {
    const delegate = this.of(socket);
    if (delegate === undefined) return closeSocket(socket, CLOSE_CODES.resync, 'unknown socket');
    try {
      if (delegate.attachment.phase === 'challenged') this.#greet(delegate, message);
      else this.#read(delegate, message);
    } catch (error) {
      if (error instanceof WireError && error.code === 'too_many')
        this.#ban(delegate.session, Date.now() + FLOOD_BAN_MS);
      this.refuse(delegate, error);
    }
  }

  #greet(delegate: Delegate, message: string | Uint8Array): void {
    if (this.prove(delegate, message) === undefined) return;
    delegate.socket.send(encodeFrame({ type: 'welcome', window: 0, gateway: this.#gateway }));
    this.#events.opened(delegate.session);
  }

  #read(delegate: Delegate, message: string | Uint8Array): void {
    if (typeof message === 'string' || message.byteLength > MESSAGE_MAX_BYTES)
      throw new WireError('bad_frame', `the message is text, or is longer than ${MESSAGE_MAX_BYTES} bytes`);
    delegate.meter.begin();
    readFrames(message, (frame) => this.#onFrame(delegate, frame));
  }

  #onFrame(delegate: Delegate, frame: Frame): void {
    if (this.of(delegate.socket) === undefined) return; // Closed because of an earlier frame.
    delegate.meter.take(frame.type);
    if (frame.type === 'gossip') this.#events.message(delegate.session, frame.bytes);
    else if (frame.type === 'probed') delegate.receipts.answered(frame.nonce);
    else if (frame.type !== 'credit')
      throw new WireError('bad_state', `a gossip socket does not carry frames of type ${frame.type}`);
  }

  send(session: string, bytes: Uint8Array): void {
    const delegate = this.activeOf(session);
    if (delegate === undefined) return;
    const { socket, receipts } = delegate;
    try {
      socket.send(encodeFrame({ type: 'gossip', bytes }));
      const nonce = receipts.sent(bytes.length);
      if (nonce !== undefined) socket.send(encodeFrame({ type: 'probe', nonce, session }));
    } catch {
      this.gone(socket); // the socket closed meanwhile
    }
    if (receipts.stuck) this.close(delegate, CLOSE_CODES.silent, 'the agent does not read');
  }

  hangUp(session: string, reason: string, bannedUntil: number): void {
    const delegate = this.activeOf(session);
    const code = reason === 'left' ? CLOSE_CODES.over : CLOSE_CODES.protocol;
    if (delegate !== undefined) this.close(delegate, code, reason);
    this.#banned.delete(session);
    if (bannedUntil > 0) this.#ban(session, bannedUntil);
  }

  #ban(session: string, until: number): void {
    this.#banned.set(session, until);
    const oldest = this.#banned.keys().next().value;
    if (this.#banned.size > BANNED_MAX && oldest !== undefined) this.#banned.delete(oldest);
  }

  /** Closes sockets without recent pings, which the agent's runtime sends. */
  sweep(now: number): void {
    for (const delegate of this.all)
      if (now - this.pingedAt(delegate) > SILENCE_MS) this.close(delegate, CLOSE_CODES.silent, 'no sign of life');
  }

  /** Called when either end closed a socket. */
  gone(socket: ObjectSocket): void {
    const delegate = this.of(socket);
    if (delegate !== undefined) this.close(delegate, CLOSE_CODES.resync, 'closed');
  }
}

function delegateOf(socket: ObjectSocket, session: string, attachment: SocketAttachment): Delegate {
  const [meter, receipts] = [new FrameMeter(steadyNow), new ReadConfirmations(Math.random)];
  return { socket, session, attachment, meter, receipts };
}

function refusal(status: number, message: string): Response {
  const error = { message, type: 'invalid_request_error', param: null, code: 'refused' };
  return Response.json({ error }, { status, headers: { 'retry-after': '60' } });
}
