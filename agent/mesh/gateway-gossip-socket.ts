/**
 * The socket of a delegate to a gateway's registry. It carries only gossip, with the handshake and heartbeat of a
 * tunnel.
 */
import type { WebSocket } from 'ws';
import { errorText } from '../../shared/text/error-text.ts';
import type { Link } from '../../shared/wire/link.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { WireError } from '../../shared/wire/wire-error.ts';
import { type ConnectionEvents, GatewayConnection } from '../tunnel/gateway-connection.ts';
import { openWebSocket, type WebSocketOptions } from '../tunnel/open-websocket.ts';
import type { SessionIdentity } from '../tunnel/tunnel-types.ts';
import { GOSSIP_SKIP_BYTES } from './channel/channel-limits.ts';

interface GatewayGossipSocketOptions {
  gateway: URL;
  identity: SessionIdentity;
  /** The encoded ticket. */
  ticket: Uint8Array;
  env: NodeJS.ProcessEnv;
  proxy?: WebSocketOptions['proxy'];
  onOpened(): void;
  onGossip(bytes: Uint8Array): void;
  /** Called once, even if the socket never opened. */
  onClosed(reason: string, opened: boolean): void;
}

let generations = 0;

export class GatewayGossipSocket {
  readonly #options: GatewayGossipSocketOptions;
  #connection: GatewayConnection | undefined;
  #socket: WebSocket | undefined;
  #link: Link | undefined;
  #finished = false;

  constructor(options: GatewayGossipSocketOptions) {
    this.#options = options;
  }

  async open(): Promise<void> {
    const { gateway, identity, ticket, env, proxy } = this.#options;
    const headers = {
      'x-otela-protocol': String(PROTOCOL_VERSION),
      'x-otela-ticket': Buffer.from(ticket).toString('base64url'),
    };
    try {
      const path = '/agent/gossip';
      await openWebSocket({ gateway, path, headers, env, proxy }, (socket) => this.#watch(socket, identity));
    } catch (error) {
      this.#end(errorText(error));
    }
  }

  #watch(socket: WebSocket, identity: SessionIdentity): void {
    if (this.#finished) return socket.terminate();
    this.#socket = socket;
    let why = '';
    socket.on('error', (error) => {
      why ||= error.message;
    });
    const events: ConnectionEvents = {
      onReady: (link) => {
        this.#link = link;
        this.#options.onOpened();
      },
      onFrame: (link, frame) => {
        // The gateway checks whether this agent reads its socket.
        if (frame.type === 'probe') return link.put({ type: 'probed', nonce: frame.nonce, verdict: 'alive' });
        if (frame.type !== 'gossip')
          throw new WireError('bad_state', `unexpected frame "${frame.type}" on a delegate's socket`);
        if (!this.#finished) this.#options.onGossip(frame.bytes);
      },
      onMessageEnd: () => {},
      onClosed: (code, reason) => this.#end(reason || why || `closed with ${code}`),
    };
    this.#connection = new GatewayConnection(socket, identity, ++generations, events, 'gossip:');
  }

  /**
   * Sends a gossip message. False if it was dropped. A gateway that does not read gets the updates later through
   * digests.
   */
  gossip(bytes: Uint8Array): boolean {
    if (this.#finished || this.#link === undefined) return false;
    if ((this.#socket?.bufferedAmount ?? 0) >= GOSSIP_SKIP_BYTES) return false;
    this.#link.put({ type: 'gossip', bytes });
    return true;
  }

  /** Ends the socket. Idempotent. */
  close(reason: string): void {
    this.#end(reason);
    this.#connection?.close(1000, reason);
  }

  #end(reason: string): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#options.onClosed(reason, this.#link !== undefined);
  }
}
