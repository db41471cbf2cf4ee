import { hex } from '../../shared/lattice/byte-codec.ts';
import { CLOSE_CODES } from '../../shared/wire/close-codes.ts';
import { encodeFrame } from '../../shared/wire/frame-codec.ts';
import { FrameMeter } from '../../shared/wire/frame-limits.ts';
import type { Frame } from '../../shared/wire/frames.ts';
import { FRAMES_HEADER, FRAMES_READ } from '../../shared/wire/protocol-constants.ts';
import type { ObjectSocket, ObjectSockets } from '../platform/object-context.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { TICKET_HEADER } from '../registry/read-ticket.ts';
import { AUDIENCE_HEADER, GATEWAY_HEADER } from '../registry/socket-headers.ts';
import { verifyHello } from '../registry/verify-hello.ts';
import { AgentSocket, type AgentSocketHost, type SocketAttachment } from './agent-socket.ts';

/** Maximum sockets that have not answered the challenge. Beyond it the oldest is closed. */
const CHALLENGED_MAX = 64;

interface Events {
  /** Called when this socket becomes the session's active one. */
  activated(peer: AgentSocket): void;
  /** Called when a newer socket replaces the session's socket. */
  replaced(): void;
  /** Returns true if no stream is open. */
  idle(): boolean;
  /** Called if the agent does not read what the gateway sends. */
  stuck(peer: AgentSocket): void;
}

/**
 * The sockets of one session: those that have not yet proved the session, and the newest one that did. What survives
 * hibernation: the sockets and their attachments (see SocketAttachment).
 */
export class AgentSockets {
  readonly #sockets: ObjectSockets;
  readonly #session: string;
  readonly #events: Events;
  readonly #host: AgentSocketHost;
  readonly #all = new Map<ObjectSocket, AgentSocket>();
  #active: AgentSocket | undefined;
  /** True if the active socket's attachment contains its link's counters. */
  #saved = true;
  #lastFrameAt = 0;

  constructor(sockets: ObjectSockets, session: string, events: Events) {
    this.#sockets = sockets;
    this.#session = session;
    this.#events = events;
    const meter = new FrameMeter(steadyNow);
    this.#host = { session, sockets, meter, stuck: (peer) => events.stuck(peer) };
  }

  get active(): AgentSocket | undefined {
    return this.#active;
  }

  of(socket: ObjectSocket): AgentSocket | undefined {
    return this.#all.get(socket);
  }

  /**
   * Restores the sockets that outlived the object's memory. They are usable if no stream was open; otherwise the agent
   * must reconnect.
   */
  wake(): void {
    for (const socket of this.#sockets.survivors()) {
      const attachment = this.#sockets.noted(socket) as SocketAttachment;
      const peer = new AgentSocket(socket, this.#host, attachment, attachment.idle);
      if (attachment.phase === 'active' && attachment.idle === undefined) {
        peer.close(CLOSE_CODES.resync, 'the gateway lost the state of this socket');
        continue;
      }
      this.#all.set(socket, peer);
      const newest = this.#active === undefined || attachment.generation > this.#active.attachment.generation;
      if (attachment.phase === 'active' && newest) this.#activate(peer);
    }
  }

  #activate(peer: AgentSocket): void {
    this.#active = peer;
    peer.activate(this.#session);
    this.#events.activated(peer);
  }

  /** Accepts a socket and challenges its agent. The route has verified the ticket. */
  accept(request: Request): Response {
    this.#makeRoom();
    const { socket, response } = this.#sockets.accept({ [FRAMES_HEADER]: String(FRAMES_READ) });
    const nonce = crypto.getRandomValues(new Uint8Array(32));
    const peer = new AgentSocket(socket, this.#host, {
      phase: 'challenged',
      ticket: request.headers.get(TICKET_HEADER) ?? '',
      audience: request.headers.get(AUDIENCE_HEADER) ?? '',
      gateway: request.headers.get(GATEWAY_HEADER) ?? '',
      provider: request.headers.get('x-otela-provider') ?? '',
      nonce: hex(nonce),
      generation: 0,
      connectedAt: Date.now(),
      reads: Number(request.headers.get(FRAMES_HEADER)) || 0,
    });
    this.#sockets.note(socket, peer.attachment);
    this.#all.set(socket, peer);
    socket.send(encodeFrame({ type: 'challenge', nonce }));
    return response;
  }

  /**
   * Closes the oldest socket without an answer, if there are too many. Tickets are public: any peer can open sockets,
   * but only the owner can answer the challenge.
   */
  #makeRoom(): void {
    const waiting = [...this.#all.values()].filter(({ attachment }) => attachment.phase === 'challenged');
    const oldest = waiting.length >= CHALLENGED_MAX ? waiting[0] : undefined;
    if (oldest === undefined) return;
    this.#all.delete(oldest.socket);
    oldest.close(CLOSE_CODES.resync, 'other connections wait, and this one did not authenticate'); // An honest agent reconnects.
  }

  /** Checks the answer to the challenge. A repeated answer is ignored. */
  greet(peer: AgentSocket, hello: Extract<Frame, { type: 'hello' }>): void {
    if (peer.attachment.phase !== 'challenged') return;
    const { audience } = peer.attachment;
    const nonce = fromHex(peer.attachment.nonce);
    if (!verifyHello(peer.ticket, { nonce, audience }, hello)) {
      // If a proxy sets its own Host header, every honest signature is for another host.
      peer.close(CLOSE_CODES.refused, `not this session's signature for Host ${audience.slice(0, 64)}`);
      return;
    }
    const former = this.#active;
    if (former !== undefined && former.attachment.generation >= hello.generation) {
      peer.close(CLOSE_CODES.replaced, 'a newer socket of this session is open');
      return;
    }
    peer.attachment = { ...peer.attachment, phase: 'active', generation: hello.generation };
    if (former !== undefined) {
      this.#all.delete(former.socket);
      former.close(CLOSE_CODES.replaced, 'replaced by a newer socket of this session');
      this.#events.replaced();
    }
    // The welcome is a separate message, because an agent reads nothing after the welcome in the same message.
    const { gateway } = peer.attachment;
    peer.socket.send(encodeFrame({ type: 'welcome', window: peer.link.state.receiveLimit, gateway }));
    peer.link.open(hello.window);
    this.#saved = this.#events.idle();
    this.#activate(peer);
    peer.save(this.#saved);
  }

  /** Closes the socket. Returns true if it was the active one; then no socket is active. */
  gone(peer: AgentSocket): boolean {
    this.#all.delete(peer.socket);
    peer.close(CLOSE_CODES.resync, 'closed');
    if (peer !== this.#active) return false;
    this.#active = undefined;
    return true;
  }

  /** Records that a message arrived at this time. */
  heard(now: number): void {
    this.#lastFrameAt = now;
  }

  /** Returns when the active socket last received something, including a heartbeat; milliseconds since the epoch. */
  heardAt({ socket, attachment }: AgentSocket): number {
    return Math.max(this.#sockets.pingedAt(socket), this.#lastFrameAt, attachment.connectedAt);
  }

  /** Writes the attachment when the tunnel becomes busy or idle. */
  save(idle: boolean): void {
    if (this.#active === undefined || this.#saved === idle) return;
    this.#saved = idle;
    this.#active.save(idle);
  }

  /**
   * Called after a message was read. On an idle tunnel it contained late frames of streams that had already ended, so
   * the counters are saved again.
   */
  messageRead(peer: AgentSocket): void {
    if (this.#saved && peer === this.#active && peer.drifted) peer.save(true);
  }
}

function fromHex(hex: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array((hex.match(/../g) ?? []).map((pair) => Number.parseInt(pair, 16)));
}
