import { fromBase64url, toBase64url } from '../../../shared/lattice/base64url.ts';
import { decodeTicket, TICKET_MAX_BYTES, type Ticket } from '../../../shared/lattice/ticket.ts';
import { CLOSE_CODES } from '../../../shared/wire/close-codes.ts';
import { encodeFrame, readFrames } from '../../../shared/wire/frame-codec.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { MESSAGE_MAX_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { ReadReceipts } from '../../../shared/wire/read-receipts.ts';
import { WireError } from '../../../shared/wire/wire-error.ts';
import { workerdCrypto } from '../../issuer/ed25519.ts';
import type { ObjectSocket, ObjectSockets } from '../../platform/object-context.ts';
import { steadyNow } from '../../platform/steady-clock.ts';
import { verifyHello } from '../verify-hello.ts';

/** Maximum sockets of delegates: three per cluster, and a few more while a cluster is split. */
const SOCKETS_MAX = 1024;
/** Maximum sockets of agents that have not proved their session yet. Beyond it the oldest is closed. */
const CHALLENGED_MAX = 128;
/**
 * The same for one session. Tickets are public: without this bound, connection attempts with one copied ticket would
 * displace all agents that are about to answer.
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

/** State of a socket that outlives hibernation. */
interface Attachment {
  phase: 'challenged' | 'active';
  /** The session's ticket in base64url. */
  ticket: string;
  nonce: string;
  audience: string;
  at: number;
}

interface Member {
  socket: ObjectSocket;
  ticket: Ticket;
  attachment: Attachment;
  meter: FrameMeter;
  receipts: ReadReceipts;
}

interface GossipSocketEvents {
  opened(session: string): void;
  closed(session: string): void;
  message(session: string, bytes: Uint8Array): void;
}

/** The sockets of delegates, which hibernate with their object. Each session has one, the newest. */
export class GossipSockets {
  readonly #sockets: ObjectSockets;
  readonly #gateway: string;
  readonly #events: GossipSocketEvents;
  readonly #members = new Map<ObjectSocket, Member>();
  readonly #active = new Map<string, Member>();
  readonly #banned = new Map<string, number>();

  constructor(sockets: ObjectSockets, gateway: string, events: GossipSocketEvents) {
    this.#sockets = sockets;
    this.#gateway = gateway;
    this.#events = events;
    for (const socket of sockets.survivors()) {
      const attachment = sockets.noted(socket) as Attachment;
      const member = memberOf(socket, ticketOf(attachment), attachment);
      this.#members.set(socket, member);
      if (attachment.phase === 'active') this.#active.set(member.ticket.session, member);
    }
  }

  /** Returns sessions with sockets that survived the object's sleep or were opened since. */
  sessions(): string[] {
    return [...this.#active.keys()];
  }

  /** Accepts a socket. The Worker has already verified the ticket. */
  accept(ticket: Ticket, audience: string, now: number): Response {
    const until = this.#banned.get(ticket.session);
    if (until !== undefined && until > now)
      return refusal(429, 'This session violated the gossip protocol; try again later.');
    if (this.#active.size >= SOCKETS_MAX)
      return refusal(503, 'This gateway already has its maximum number of delegates.');
    this.#makeRoom(ticket.session);
    const { socket, response } = this.#sockets.accept();
    const nonce = crypto.getRandomValues(new Uint8Array(32));
    const attachment: Attachment = {
      phase: 'challenged',
      ticket: toBase64url(ticket.bytes),
      nonce: toBase64url(nonce),
      audience,
      at: now,
    };
    this.#sockets.note(socket, attachment);
    this.#members.set(socket, memberOf(socket, ticket, attachment));
    socket.send(encodeFrame({ type: 'challenge', nonce }));
    return response;
  }

  #makeRoom(session: string): void {
    const waiting = [...this.#members.values()].filter(({ attachment }) => attachment.phase === 'challenged');
    const same = waiting.filter(({ ticket }) => ticket.session === session);
    const full = waiting.length >= CHALLENGED_MAX ? waiting[0] : undefined;
    const oldest = same.length >= CHALLENGED_PER_SESSION ? same[0] : full;
    if (oldest !== undefined)
      this.#close(oldest, CLOSE_CODES.resync, 'other connections wait, and this one did not authenticate');
  }

  receive(socket: ObjectSocket, message: string | ArrayBuffer): void {
    const member = this.#members.get(socket);
    if (member === undefined) return shut(socket, CLOSE_CODES.resync, 'unknown socket');
    try {
      if (typeof message === 'string' || message.byteLength > MESSAGE_MAX_BYTES)
        throw new WireError('bad_frame', 'the message contains no frames');
      member.meter.begin();
      readFrames(new Uint8Array(message), (frame) => this.#onFrame(member, frame));
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      if (error.code === 'too_many') this.#ban(member.ticket.session, Date.now() + FLOOD_BAN_MS);
      this.#close(member, CLOSE_CODES.protocol, `${error.code}: ${error.message}`);
    }
  }

  #onFrame(member: Member, frame: Frame): void {
    if (!this.#members.has(member.socket)) return;
    if (member.attachment.phase === 'challenged') {
      if (frame.type !== 'hello') throw new WireError('bad_state', `${frame.type} before the welcome`);
      return this.#greet(member, frame);
    }
    member.meter.take(frame.type);
    if (frame.type === 'gossip') this.#events.message(member.ticket.session, frame.bytes);
    else if (frame.type === 'probed') member.receipts.answered(frame.nonce);
    else if (frame.type !== 'credit') throw new WireError('bad_state', `${frame.type} on a delegate's socket`);
  }

  #greet(member: Member, hello: Extract<Frame, { type: 'hello' }>): void {
    const { ticket, attachment } = member;
    const nonce = fromBase64url(attachment.nonce, 64) ?? new Uint8Array();
    if (!verifyHello(ticket, { nonce, audience: attachment.audience }, hello))
      return this.#close(
        member,
        CLOSE_CODES.refused,
        `not this session's signature for ${attachment.audience.slice(0, 64)}`,
      );
    const former = this.#active.get(ticket.session);
    if (former !== undefined) this.#close(former, CLOSE_CODES.replaced, 'replaced by a newer socket of this session');
    member.attachment = { ...attachment, phase: 'active' };
    this.#sockets.note(member.socket, member.attachment);
    this.#active.set(ticket.session, member);
    member.socket.send(encodeFrame({ type: 'welcome', window: 0, gateway: this.#gateway }));
    this.#events.opened(ticket.session);
  }

  send(session: string, bytes: Uint8Array): void {
    const member = this.#active.get(session);
    if (member === undefined) return;
    try {
      member.socket.send(encodeFrame({ type: 'gossip', bytes }));
      const nonce = member.receipts.sent(bytes.length);
      if (nonce !== undefined) member.socket.send(encodeFrame({ type: 'probe', nonce, session }));
    } catch {
      this.gone(member.socket); // the socket closed meanwhile
    }
    if (member.receipts.stuck) this.#close(member, CLOSE_CODES.silent, 'the agent does not read');
  }

  hangUp(session: string, reason: string, bannedUntil: number): void {
    const member = this.#active.get(session);
    if (member !== undefined) this.#close(member, reason === 'left' ? CLOSE_CODES.over : CLOSE_CODES.protocol, reason);
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
    for (const member of [...this.#members.values()]) {
      const pinged = this.#sockets.pingedAt(member.socket);
      if (now - Math.max(pinged, member.attachment.at) > SILENCE_MS)
        this.#close(member, CLOSE_CODES.silent, 'no sign of life');
    }
  }

  #close(member: Member, code: number, reason: string): void {
    shut(member.socket, code, reason);
    this.gone(member.socket);
  }

  /** Called when either end closed a socket. */
  gone(socket: ObjectSocket): void {
    const member = this.#members.get(socket);
    if (member === undefined) return;
    this.#members.delete(socket);
    if (this.#active.get(member.ticket.session) !== member) return;
    this.#active.delete(member.ticket.session);
    this.#events.closed(member.ticket.session);
  }
}

function memberOf(socket: ObjectSocket, ticket: Ticket, attachment: Attachment): Member {
  return { socket, ticket, attachment, meter: new FrameMeter(steadyNow), receipts: new ReadReceipts(Math.random) };
}

function ticketOf({ ticket }: Attachment): Ticket {
  return decodeTicket(fromBase64url(ticket, TICKET_MAX_BYTES) ?? new Uint8Array(), workerdCrypto);
}

function shut(socket: ObjectSocket, code: number, reason: string): void {
  try {
    socket.close(code, reason.slice(0, 120)); // close() throws if the reason has more than 123 bytes
  } catch {
    // the socket is already closed
  }
}

function refusal(status: number, message: string): Response {
  const error = { message, type: 'invalid_request_error', param: null, code: 'refused' };
  return Response.json({ error }, { status, headers: { 'retry-after': '60' } });
}
