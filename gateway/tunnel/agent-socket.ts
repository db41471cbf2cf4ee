import type { Ticket } from '../../shared/lattice/ticket.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { FrameMeter } from '../../shared/wire/frame-limits.ts';
import type { Frame } from '../../shared/wire/frames.ts';
import { Link, type LinkState } from '../../shared/wire/link.ts';
import { SOCKET_WINDOW_BYTES, WINDOW_FLOOR_BYTES } from '../../shared/wire/protocol-constants.ts';
import { ReadConfirmations } from '../../shared/wire/read-confirmations.ts';
import { WireError } from '../../shared/wire/wire-error.ts';
import type { ObjectSocket, ObjectSockets } from '../platform/object-context.ts';
import { type SocketAttachment, ticketOf } from '../registry/proven-sockets.ts';

/**
 * Maximum bytes of responses that wait in all objects of an isolate. Objects of one class may share an isolate, which
 * has 128 MB.
 */
const ISOLATE_WINDOW_BYTES = 48 * 1024 * 1024;

/**
 * Divides the isolate's budget among its sessions: 4 MiB each for up to 12 sessions, an equal share for more sessions,
 * and at least WINDOW_FLOOR_BYTES. The total is at most 48 MiB + 64 KiB per session, after the windows of older sockets
 * have shrunk to their share. Objects are not notified when shares change. Each checks its share when it next reads a
 * message, because an object cannot write to another object's socket. An object that was put to sleep never removes its
 * socket, so a session counts once: its next socket replaces the old one.
 */
class WindowBudget {
  readonly #members = new Map<string, object>();

  /** Adds a session's socket. Returns a function that removes it. The session's next socket replaces this one. */
  join(session: string): () => void {
    const member = {};
    this.#members.set(session, member);
    return () => {
      if (this.#members.get(session) === member) this.#members.delete(session);
    };
  }

  /** One share, in bytes. */
  get window(): number {
    const share = Math.floor(ISOLATE_WINDOW_BYTES / Math.max(1, this.#members.size));
    return Math.max(WINDOW_FLOOR_BYTES, Math.min(SOCKET_WINDOW_BYTES, share));
  }
}

const isolateWindowBudget = new WindowBudget();

/**
 * `idle` contains the link's counters while no stream is open, and is absent while a stream is open. An object that
 * wakes to a socket without these counters has lost its streams: it closes the socket, the agent reconnects, and the
 * streams are claimed.
 */
export interface TunnelAttachment extends SocketAttachment {
  /** The gateway's id as a gossip peer. */
  gateway: string;
  provider: string;
  /** The highest frame type that the agent reads (FRAMES_HEADER); 0: the agent did not report it. */
  reads?: number;
  idle?: LinkState;
}

/** State that all sockets of one session share. */
export interface AgentSocketHost {
  session: string;
  sockets: Pick<ObjectSockets, 'note' | 'schedule'>;
  /**
   * The limits on frames. All sockets of the session share them, so that a flooding session does not get a new
   * allowance with its next socket.
   */
  meter: FrameMeter;
  /** Called if the agent does not read what the gateway sends. */
  stuck(peer: AgentSocket): void;
}

/** An agent's socket with its link. */
export class AgentSocket {
  readonly socket: ObjectSocket;
  readonly link: Link;
  attachment: TunnelAttachment;
  readonly #host: AgentSocketHost;
  readonly #readConfirmations = new ReadConfirmations(Math.random);
  /** Payload bytes that had been sent when the last message was sent. */
  #payloadSent: number;
  #leave: (() => void) | undefined;

  constructor(socket: ObjectSocket, host: AgentSocketHost, attachment: TunnelAttachment, restored?: LinkState) {
    this.socket = socket;
    this.#host = host;
    this.attachment = attachment;
    this.#payloadSent = restored?.sent ?? 0;
    const port = {
      send: (message: Uint8Array) => this.#send(message),
      busy: () => false, // workerd does not show its queue: credit limits payload, read confirmations limit the rest
      stuck: () => host.stuck(this), // never called, because `busy` is always false
      schedule: (flush: () => void) => host.sockets.schedule(flush),
    };
    this.link = new Link(port, { send: 0, receive: isolateWindowBudget.window }, host.meter, restored);
  }

  get session(): string {
    return this.#host.session;
  }

  get ticket(): Ticket {
    return ticketOf(this.attachment);
  }

  /** Gives the socket a share of the isolate's memory. */
  activate(): void {
    this.#leave ??= isolateWindowBudget.join(this.session);
  }

  /** True if the attachment's counters differ from the link's. */
  get countersDiffer(): boolean {
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
      return; // the socket is already closed: webSocketClose follows, or the tick notices that nothing arrives
    }
    const payload = this.link.sent - this.#payloadSent;
    this.#payloadSent = this.link.sent;
    const nonce = this.#readConfirmations.sent(message.length - payload);
    if (nonce !== undefined) this.link.put({ type: 'probe', nonce, session: this.session });
    // The call is deferred, because the link is in the middle of sending.
    if (this.#readConfirmations.stuck) neverRejects(Promise.resolve().then(() => this.#host.stuck(this)));
  }

  /** Handles PROBED. Returns false if it is not the answer to the probe that checks whether the agent reads. */
  confirmed(nonce: number): boolean {
    return this.#readConfirmations.answered(nonce);
  }

  /** Reads a message. @throws WireError */
  receive(message: string | Uint8Array, each: (frame: Frame) => void): void {
    if (typeof message === 'string') throw new WireError('bad_frame', 'a text message is not a frame');
    this.link.resize(isolateWindowBudget.window);
    this.link.receive(message, each);
  }

  /** Writes the attachment for the link's current state: with counters if no stream is open. */
  save(idle: boolean): void {
    const { idle: _, ...rest } = this.attachment;
    this.attachment = idle ? { ...rest, idle: this.link.state } : rest;
    this.#host.sockets.note(this.socket, this.attachment);
  }

  /** Closes the link, and returns the socket's share of the isolate's memory. */
  release(): void {
    this.link.close();
    this.#leave?.();
    this.#leave = undefined;
  }
}
