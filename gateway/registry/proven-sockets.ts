import { fromBase64url, toBase64url } from '../../shared/lattice/base64url.ts';
import { helloMessage } from '../../shared/lattice/session-id.ts';
import { decodeTicket, TICKET_MAX_BYTES, type Ticket } from '../../shared/lattice/ticket.ts';
import { CLOSE_CODES, closeReason } from '../../shared/wire/close-codes.ts';
import { encodeFrame, readFrames } from '../../shared/wire/frame-codec.ts';
import type { Frame } from '../../shared/wire/frames.ts';
import { MESSAGE_MAX_BYTES } from '../../shared/wire/protocol-constants.ts';
import { WireError } from '../../shared/wire/wire-error.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import type { ObjectSocket, ObjectSockets } from '../platform/object-context.ts';

/** Headers with which a route passes an agent's socket to its object. */
export const AUDIENCE_HEADER = 'x-otela-audience';
export const GATEWAY_HEADER = 'x-otela-gateway';

type Hello = Extract<Frame, { type: 'hello' }>;

/**
 * The content of a socket's attachment. The attachment outlives hibernation, unlike the object's memory. If the objects
 * of a host do not hibernate, the attachment is only in memory.
 */
export interface SocketAttachment {
  phase: 'challenged' | 'active';
  /** The agent's ticket, in base64url. */
  ticket: string;
  /** The host that the agent dialed. A gossip socket has the prefix `gossip:` before it. */
  audience: string;
  /** The challenge that the agent must sign, in base64url. */
  nonce: string;
  /** Number of the socket among the sockets of its agent's process; a newer socket has a larger one. */
  generation: number;
  /** Milliseconds since the epoch. */
  connectedAt: number;
}

/** An object's end of one socket. */
interface Peer {
  readonly socket: ObjectSocket;
  readonly session: string;
  readonly attachment: SocketAttachment;
  /** Called when the socket is closed. */
  release?(): void;
}

interface Limits {
  /** Maximum sockets that have not answered the challenge. Beyond it the oldest is closed. */
  challenged: number;
  /** Maximum sockets of one session that have not answered the challenge. */
  challengedPerSession: number;
}

/**
 * The sockets of agents at one object: for each session the newest proven socket, and sockets that are not proven. A
 * socket is proven when its agent has shown that it owns its ticket's session. The sockets and their attachments
 * survive hibernation.
 */
export abstract class ProvenSockets<P extends Peer> {
  readonly #sockets: ObjectSockets;
  readonly #limits: Limits;
  readonly #all = new Map<ObjectSocket, P>();
  readonly #active = new Map<string, P>();

  constructor(sockets: ObjectSockets, limits: Limits) {
    this.#sockets = sockets;
    this.#limits = limits;
  }

  /** Called when a session's active socket is gone. `replaced`: a newer one follows. */
  protected abstract onGone(peer: P, replaced: boolean): void;

  of(socket: ObjectSocket): P | undefined {
    return this.#all.get(socket);
  }

  protected activeOf(session: string): P | undefined {
    return this.#active.get(session);
  }

  protected get all(): P[] {
    return [...this.#all.values()];
  }

  /** Sessions with a proven socket. The socket may be older than the object's memory. */
  get sessions(): string[] {
    return [...this.#active.keys()];
  }

  /** Adds a socket that outlived the object's memory. */
  protected restore(peer: P): void {
    this.#all.set(peer.socket, peer);
    const { phase, generation } = peer.attachment;
    const newest = this.#active.get(peer.session)?.attachment.generation ?? -1;
    if (phase === 'active' && generation > newest) this.#active.set(peer.session, peer);
  }

  /** Accepts a socket and challenges its agent. The route has verified the ticket. */
  protected challenge(
    { session, ticket, audience }: { session: string; ticket: string; audience: string },
    create: (socket: ObjectSocket, attachment: SocketAttachment) => P,
    headers?: Record<string, string>,
  ): Response {
    this.#makeRoom(session);
    const { socket, response } = this.#sockets.accept(headers);
    const nonce = crypto.getRandomValues(new Uint8Array(32));
    const challenged = { ticket, audience, nonce: toBase64url(nonce), generation: 0, connectedAt: Date.now() };
    const peer = create(socket, { phase: 'challenged', ...challenged });
    this.#sockets.note(socket, peer.attachment);
    this.#all.set(socket, peer);
    socket.send(encodeFrame({ type: 'challenge', nonce }));
    return response;
  }

  /**
   * Closes the oldest unproven socket if there are too many, of this session or in total. Tickets are public: any
   * holder can open sockets, but only the owner can answer the challenge.
   */
  #makeRoom(session: string): void {
    const { challenged, challengedPerSession } = this.#limits;
    const waiting = this.all.filter(({ attachment }) => attachment.phase === 'challenged');
    const same = waiting.filter((peer) => peer.session === session);
    const full = waiting.length >= challenged ? waiting[0] : undefined;
    const oldest = same.length >= challengedPerSession ? same[0] : full;
    // Closing an honest agent's socket is harmless, because the agent connects again.
    if (oldest !== undefined)
      this.close(oldest, CLOSE_CODES.resync, 'other connections wait, and this one did not authenticate');
  }

  /**
   * Reads the answer to the challenge. Returns it if the socket has become its session's active socket.
   * @throws WireError
   */
  protected prove(peer: P, message: string | Uint8Array): Hello | undefined {
    const hello = readHello(message);
    return hello !== undefined && this.#activate(peer, hello) ? hello : undefined;
  }

  #activate(peer: P, hello: Hello): boolean {
    const { session, attachment } = peer;
    const { audience } = attachment;
    const nonce = fromBase64url(attachment.nonce, 64) ?? new Uint8Array();
    if (!verifyHello(ticketOf(attachment), { nonce, audience }, hello)) {
      // The reason names the host: if a proxy sets its own Host header, every honest signature is for another host.
      this.close(peer, CLOSE_CODES.refused, `not this session's signature for Host ${audience.slice(0, 64)}`);
      return false;
    }
    const former = this.#active.get(session);
    if (former !== undefined && former.attachment.generation >= hello.generation) {
      this.close(peer, CLOSE_CODES.replaced, 'a newer socket of this session is open');
      return false;
    }
    attachment.phase = 'active';
    attachment.generation = hello.generation;
    this.#sockets.note(peer.socket, attachment);
    this.#active.set(session, peer);
    if (former === undefined) return true;
    this.close(former, CLOSE_CODES.replaced, 'replaced by a newer socket of this session');
    this.onGone(former, true);
    return true;
  }

  /** Returns when the socket was opened or last sent a heartbeat; milliseconds since the epoch. */
  protected pingedAt({ socket, attachment }: P): number {
    return Math.max(this.#sockets.pingedAt(socket), attachment.connectedAt);
  }

  /** Closes a socket whose message breaks the protocol. @throws `error` if it is not a WireError */
  refuse(peer: P, error: unknown): void {
    if (!(error instanceof WireError)) throw error;
    this.close(peer, CLOSE_CODES.protocol, `${error.code}: ${error.message}`);
  }

  /** Closes a socket, or forgets one that is closed. */
  close(peer: P, code: number, reason: string): void {
    this.#all.delete(peer.socket);
    peer.release?.();
    closeSocket(peer.socket, code, reason);
    if (this.#active.get(peer.session) !== peer) return;
    this.#active.delete(peer.session);
    this.onGone(peer, false);
  }
}

export function closeSocket(socket: ObjectSocket, code: number, reason: string): void {
  try {
    socket.close(code, closeReason(reason));
  } catch {
    // Already closed.
  }
}

/** Returns the ticket, which the Worker verified before the socket reached this object. */
export function ticketOf({ ticket }: Pick<SocketAttachment, 'ticket'>): Ticket {
  return decodeTicket(fromBase64url(ticket, TICKET_MAX_BYTES) ?? new Uint8Array(), workerdCrypto);
}

/**
 * Reads the first message. An unproven peer may send only hello, and must not use up the session's own frame limits.
 * Undefined: there is no frame. @throws WireError
 */
export function readHello(message: string | Uint8Array): Hello | undefined {
  if (typeof message === 'string') throw new WireError('bad_frame', 'a text message is not a frame');
  if (message.byteLength > MESSAGE_MAX_BYTES)
    throw new WireError('too_large', `message of ${message.byteLength} bytes`);
  let hello: Hello | undefined;
  readFrames(message, (frame) => {
    if (frame.type !== 'hello') throw new WireError('bad_state', `${frame.type} before the welcome`);
    hello = frame;
  });
  return hello;
}

/**
 * Returns true if the agent signed our nonce, for the host that it dialed, with the private key of the ticket's
 * session.
 */
export function verifyHello(
  { session, sessionKey }: Ticket,
  { nonce, audience }: { nonce: Uint8Array; audience: string },
  { publicKey, generation, signature }: Hello,
): boolean {
  if (!sessionKey.every((byte, at) => byte === publicKey[at])) return false;
  return workerdCrypto.verify(sessionKey, helloMessage(session, generation, nonce, audience), signature);
}
