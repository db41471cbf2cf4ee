import { CLOSE_CODES } from '../../shared/wire/close-codes.ts';
import { encodeFrame } from '../../shared/wire/frame-codec.ts';
import { FrameMeter } from '../../shared/wire/frame-limits.ts';
import { FRAMES_HEADER, FRAMES_READ, TAIL_HEADER } from '../../shared/wire/protocol-constants.ts';
import type { ObjectSockets } from '../platform/object-context.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { AUDIENCE_HEADER, GATEWAY_HEADER, ProvenSockets } from '../registry/proven-sockets.ts';
import { TICKET_HEADER } from '../registry/verify-agent-ticket.ts';
import { AgentSocket, type AgentSocketHost, type TunnelAttachment } from './agent-socket.ts';

/** Maximum sockets that have not answered the challenge. */
const CHALLENGED_MAX = 64;

interface Events {
  /** Called when this socket becomes the session's active one. */
  activated(peer: AgentSocket): void;
  /** Called when a newer socket replaces the session's socket. */
  replaced(): void;
  /** Called when the session has no socket any more. */
  gone(): void;
  /** Returns true if no stream is open. */
  idle(): boolean;
}

/** The sockets of one session; the active one is its tunnel. */
export class AgentSockets extends ProvenSockets<AgentSocket> {
  readonly #sockets: ObjectSockets;
  readonly #session: string;
  readonly #events: Events;
  readonly #host: AgentSocketHost;
  readonly #headers: Record<string, string>;
  #active: AgentSocket | undefined;
  /** True if the active socket's attachment contains its link's counters. */
  #saved = true;
  #lastFrameAt = 0;

  /** @param tail number of acknowledged bytes of each response that the agent keeps; undefined: the agent's default */
  constructor(sockets: ObjectSockets, session: string, tail: number | undefined, events: Events) {
    super(sockets, { challenged: CHALLENGED_MAX, challengedPerSession: CHALLENGED_MAX });
    this.#sockets = sockets;
    this.#session = session;
    this.#events = events;
    this.#headers = {
      [FRAMES_HEADER]: String(FRAMES_READ),
      ...(tail !== undefined && { [TAIL_HEADER]: String(tail) }),
    };
    const stuck = (peer: AgentSocket) => this.close(peer, CLOSE_CODES.silent, 'the agent does not read');
    this.#host = { session, sockets, meter: new FrameMeter(steadyNow), stuck };
  }

  get active(): AgentSocket | undefined {
    return this.#active;
  }

  protected override onGone(_: AgentSocket, replaced: boolean): void {
    if (replaced) return this.#events.replaced();
    this.#active = undefined;
    this.#events.gone();
  }

  /**
   * Restores the sockets that outlived the object's memory. They are usable if no stream was open; otherwise the agent
   * must reconnect.
   */
  wake(): void {
    for (const socket of this.#sockets.survivors()) {
      const attachment = this.#sockets.noted(socket) as TunnelAttachment;
      const peer = new AgentSocket(socket, this.#host, attachment, attachment.idle);
      if (attachment.phase === 'active' && attachment.idle === undefined)
        this.close(peer, CLOSE_CODES.resync, 'the gateway lost the state of this socket');
      else this.restore(peer);
    }
    const newest = this.activeOf(this.#session);
    if (newest !== undefined) this.#activate(newest);
  }

  #activate(peer: AgentSocket): void {
    this.#active = peer;
    peer.activate();
    this.#events.activated(peer);
  }

  /** Accepts a socket and challenges its agent. The route has verified the ticket. */
  accept({ headers }: Request): Response {
    const [session, ticket] = [this.#session, headers.get(TICKET_HEADER) ?? ''];
    const more = {
      gateway: headers.get(GATEWAY_HEADER) ?? '',
      provider: headers.get('x-otela-provider') ?? '',
      reads: Number(headers.get(FRAMES_HEADER)) || 0,
    };
    return this.challenge(
      { session, ticket, audience: headers.get(AUDIENCE_HEADER) ?? '' },
      (socket, attachment) => new AgentSocket(socket, this.#host, { ...attachment, ...more }),
      this.#headers,
    );
  }

  /** Reads the answer to the challenge. @throws WireError */
  onHello(peer: AgentSocket, message: string | Uint8Array): void {
    const hello = this.prove(peer, message);
    if (hello === undefined) return;
    // The welcome is a separate message, because an agent ignores frames after it in the same message.
    const { gateway } = peer.attachment;
    peer.socket.send(encodeFrame({ type: 'welcome', window: peer.link.state.receiveLimit, gateway }));
    peer.link.open(hello.window);
    this.#saved = this.#events.idle();
    this.#activate(peer);
    peer.save(this.#saved);
  }

  /** Records that a message arrived at this time. */
  onReceived(now: number): void {
    this.#lastFrameAt = now;
  }

  /** Returns when the active socket last received something, including a heartbeat; milliseconds since the epoch. */
  heardAt(peer: AgentSocket): number {
    return Math.max(this.pingedAt(peer), this.#lastFrameAt);
  }

  /** Writes the attachment when the tunnel becomes busy or idle. */
  save(idle: boolean): void {
    if (this.#active === undefined || this.#saved === idle) return;
    this.#saved = idle;
    this.#active.save(idle);
  }

  /**
   * Called after a message was read. If the tunnel is idle, the message contained late frames of streams that had
   * already ended, so the counters are saved again.
   */
  messageRead(peer: AgentSocket): void {
    if (this.#saved && peer === this.#active && peer.countersDiffer) peer.save(true);
  }
}
