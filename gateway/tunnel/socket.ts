import { fromBase64url } from '../../shared/lattice/base64url.ts';
import { decodeTicket, TICKET_MAX_BYTES, type Ticket } from '../../shared/lattice/ticket.ts';
import { CLOSE } from '../../shared/wire/close.ts';
import { WireError } from '../../shared/wire/error.ts';
import type { Frame } from '../../shared/wire/frames.ts';
import { Link, type LinkState } from '../../shared/wire/link.ts';
import { workerdCrypto } from '../issuer/crypto.ts';
import type { ObjectSocket, ObjectSockets } from '../object-context.ts';
import { isolateBudget } from './budget.ts';

/**
 * What a socket's attachment holds: it outlives hibernation, the object's memory does not. In memory alone where objects stay.
 * `idle` has the link's counters while no stream is open; with streams open it is absent, and an object that wakes to such a
 * socket has lost them: it closes the socket, the agent comes back and the streams are claimed.
 */
export interface SocketAttachment {
  phase: 'challenged' | 'active';
  /** Base64url. */
  ticket: string;
  /** The host that the agent dialled. */
  audience: string;
  /** The gateway's name as a gossip peer. */
  gateway: string;
  provider: string;
  /** Hex. */
  nonce: string;
  generation: number;
  connectedAt: number;
  /** The highest number of a frame that the agent reads; 0: it did not say. */
  reads?: number;
  idle?: LinkState;
}

/** An agent's socket with its link. */
export class AgentSocket {
  readonly socket: ObjectSocket;
  readonly link: Link;
  attachment: SocketAttachment;
  readonly #sockets: Pick<ObjectSockets, 'note'>;
  #leave: (() => void) | undefined;

  constructor(
    socket: ObjectSocket,
    sockets: Pick<ObjectSockets, 'note'>,
    attachment: SocketAttachment,
    restored?: LinkState,
  ) {
    this.socket = socket;
    this.#sockets = sockets;
    this.attachment = attachment;
    const port = {
      send: (message: Uint8Array) => this.#send(message),
      busy: () => false, // workerd says nothing about its queue: the peer's credit bounds it
      // Not queueMicrotask: workerd's makes an object of its own for each call.
      schedule: (flush: () => void) => void Promise.resolve().then(flush),
    };
    this.link = new Link(port, { send: 0, receive: isolateBudget.window }, restored);
  }

  /** Opened by the Worker before it came here. */
  get ticket(): Ticket {
    const bytes = fromBase64url(this.attachment.ticket, TICKET_MAX_BYTES) ?? new Uint8Array();
    return decodeTicket(bytes, workerdCrypto);
  }

  /** From here on it has a share of the isolate's memory. */
  activate(session: string): void {
    this.#leave ??= isolateBudget.join(session);
  }

  /** The counters in the attachment are not those of the link any more. */
  get drifted(): boolean {
    const { idle } = this.attachment;
    if (idle === undefined) return false;
    const { sent, sendLimit, received, receiveLimit } = this.link.state;
    return (
      idle.sent !== sent ||
      idle.sendLimit !== sendLimit ||
      idle.received !== received ||
      idle.receiveLimit !== receiveLimit
    );
  }

  #send(message: Uint8Array): void {
    try {
      this.socket.send(message);
    } catch {
      // Closed under us: webSocketClose follows, or the silence is noticed.
    }
  }

  /** Reads a message. False where the peer broke the protocol: the socket is closed then. */
  receive(message: string | ArrayBuffer, each: (frame: Frame) => void): boolean {
    try {
      if (typeof message === 'string') throw new WireError('bad_frame', 'text is no frame');
      this.link.resize(isolateBudget.window);
      this.link.receive(new Uint8Array(message), each);
      return true;
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      this.close(CLOSE.protocol, `${error.code}: ${error.message}`);
      return false;
    }
  }

  /** Writes the attachment for the state that the link is in: with counters when no stream is open. */
  save(idle: boolean): void {
    const { idle: _, ...rest } = this.attachment;
    this.attachment = idle ? { ...rest, idle: this.link.state } : rest;
    this.#sockets.note(this.socket, this.attachment);
  }

  close(code: number, reason: string): void {
    this.release();
    try {
      this.socket.close(code, reason.slice(0, 120)); // above 123 bytes it throws
    } catch {
      // closed already
    }
  }

  /** The socket is gone. */
  release(): void {
    this.link.close();
    this.#leave?.();
    this.#leave = undefined;
  }
}
