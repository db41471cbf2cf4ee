import type { Socket } from 'node:net';
import type { WebSocket } from 'ws';
import { CLOSE_CODES, closeReason } from '../../shared/wire/close-codes.ts';
import { encodeFrame, readFrames } from '../../shared/wire/frame-codec.ts';
import { FrameMeter } from '../../shared/wire/frame-limits.ts';
import type { Frame } from '../../shared/wire/frames.ts';
import { PING_TEXT } from '../../shared/wire/heartbeat.ts';
import { Link } from '../../shared/wire/link.ts';
import { SOCKET_WINDOW_BYTES } from '../../shared/wire/protocol-constants.ts';
import { WireError } from '../../shared/wire/wire-error.ts';
import { gatewayTimeout, waitClock } from '../wait-clock.ts';
import { helloFrame } from './session-identity.ts';
import type { SessionIdentity } from './tunnel-types.ts';
import { websocketLinkPort } from './websocket-link-port.ts';

/**
 * Interval of pings. A tunnel without streams leaves out every second one: 10,000 idle agents would otherwise keep a
 * slow core of the gateway busy for an eighth of its time. The NATs of some clusters drop a connection that was idle for
 * one minute.
 */
const PING_EVERY_MS = 15_000;

/**
 * Maximum wait for the pong. A path that drops packets sends no error, and the agent would notice it only after many
 * minutes.
 */
const PONG_WITHIN_MS = 10_000;

export interface ConnectionEvents {
  /** Called when the gateway accepted this session on this socket. */
  onReady(link: Link, gateway: string): void;
  onFrame(link: Link, frame: Frame): void;
  onMessageEnd(): void;
  onClosed(code: number, reason: string): void;
}

/** One WebSocket to a gateway, from start to end: challenge, hello, welcome, frames, heartbeat, close. */
export class GatewayConnection {
  readonly #socket: WebSocket;
  readonly #identity: SessionIdentity;
  readonly #generation: number;
  readonly #audience: string;
  readonly #isTunnel: boolean;
  readonly #events: ConnectionEvents;
  /** The TCP or TLS socket below the WebSocket, once it is open. */
  #raw: Socket | undefined;
  #link: Link | undefined;
  #heartbeat: NodeJS.Timeout | undefined;
  /** True if the last ping was left out. */
  #rested = false;
  #endPongWait: (() => void) | undefined;
  #endWelcomeWait: (() => void) | undefined;
  #openedAt = 0;
  #finished = false;

  /**
   * @param purpose set for a socket that is not a tunnel. The purpose and the host are part of the signed challenge, so
   * a signature for another purpose or host is not accepted.
   */
  constructor(
    socket: WebSocket,
    identity: SessionIdentity,
    generation: number,
    events: ConnectionEvents,
    purpose: '' | 'gossip:' = '',
  ) {
    this.#audience = purpose + new URL(socket.url).host;
    this.#isTunnel = purpose === '';
    this.#socket = socket;
    this.#identity = identity;
    this.#generation = generation;
    this.#events = events;
    socket.binaryType = 'nodebuffer';
    socket.on('message', (data: Buffer, isBinary: boolean) => this.#onMessage(data, isBinary));
    socket.on('close', (code, reason) => this.#onClose(code, reason.toString()));
    socket.on('error', () => {}); // the close event follows
    socket.on('upgrade', (response) => {
      this.#raw = response.socket;
    });
    socket.on('open', () => {
      this.#openedAt = waitClock.now();
      // Without this limit, a gateway that answers only pings would keep the agent waiting forever.
      this.#endWelcomeWait = waitClock.after(gatewayTimeout.ms, () => {
        gatewayTimeout.expired();
        this.close(CLOSE_CODES.protocol, 'received no welcome');
      });
    });
    this.#heartbeat = setInterval(() => this.#ping(), PING_EVERY_MS);
  }

  #ping(): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#rested = !this.#rested && this.#isTunnel && this.#link?.idle === true;
    if (this.#rested) return;
    this.#socket.send(PING_TEXT);
    this.#endPongWait ??= waitClock.after(PONG_WITHIN_MS, () => this.#socket.terminate());
  }

  #onMessage(data: Buffer, isBinary: boolean): void {
    this.#endPongWait?.();
    this.#endPongWait = undefined;
    if (!isBinary) return; // text messages are only pongs
    try {
      if (this.#link === undefined) return this.#handshake(data);
      const link = this.#link;
      link.receive(data, (frame) => this.#events.onFrame(link, frame));
      this.#events.onMessageEnd();
    } catch (error) {
      // If the gateway breaks the protocol, the agent opens a new socket.
      if (!(error instanceof WireError) && !(error instanceof RangeError)) throw error;
      this.close(CLOSE_CODES.protocol, error.message);
    }
  }

  #handshake(data: Uint8Array): void {
    readFrames(data, (frame) => {
      if (frame.type === 'challenge') this.#hello(frame.nonce);
      else if (frame.type === 'welcome') this.#welcome(frame.window, frame.gateway);
      else throw new WireError('bad_state', `${frame.type} before the welcome`);
    });
  }

  #hello(nonce: Uint8Array): void {
    const asked = { nonce, audience: this.#audience, generation: this.#generation, window: SOCKET_WINDOW_BYTES };
    this.#socket.send(encodeFrame(helloFrame(this.#identity, asked)));
  }

  #welcome(window: number, gateway: string): void {
    if (this.#raw === undefined) throw new WireError('bad_state', 'a welcome before the upgrade');
    const port = websocketLinkPort(this.#socket, this.#raw, () => this.#link?.flush());
    const link = new Link(
      port,
      { send: window, receive: SOCKET_WINDOW_BYTES },
      new FrameMeter(() => performance.now()),
    );
    this.#link = link;
    this.#endWelcomeWait?.();
    gatewayTimeout.answered(waitClock.now() - this.#openedAt);
    this.#events.onReady(link, gateway);
  }

  close(code: number, reason: string): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return this.#socket.terminate();
    this.#link?.flush();
    this.#socket.close(code, closeReason(reason));
    // Limits the wait for a gateway that does not answer the close.
    setTimeout(() => this.#socket.terminate(), 2_000).unref();
  }

  #onClose(code: number, reason: string): void {
    if (this.#finished) return;
    this.#finished = true;
    clearInterval(this.#heartbeat);
    this.#endPongWait?.();
    this.#endWelcomeWait?.();
    this.#link?.close();
    this.#events.onClosed(code, reason);
  }
}
