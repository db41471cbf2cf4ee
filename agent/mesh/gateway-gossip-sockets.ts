import { neverRejects } from '../../shared/timing/in-background.ts';
import type { WebSocketOptions } from '../tunnel/open-websocket.ts';
import type { SessionIdentity } from '../tunnel/tunnel-types.ts';
import { GatewayGossipSocket } from './gateway-gossip-socket.ts';

/** A gateway that admitted this session. */
export interface MeshGateway {
  /** `gw:` and the gateway's key in base32. */
  id: string;
  url: URL;
}

interface GatewayGossipSocketsOptions {
  identity: SessionIdentity;
  ticket: Uint8Array;
  env: NodeJS.ProcessEnv;
  proxy?: WebSocketOptions['proxy'];
  onOpened(id: string): void;
  onGossip(id: string, bytes: Uint8Array): void;
  onClosed(id: string): void;
  onDialFailed(id: string): void;
  log(line: string): void;
}

const GATEWAYS_MAX = 64;

/** The gossip sockets of this delegate to gateways, by gateway id. */
export class GatewayGossipSockets {
  readonly #options: GatewayGossipSocketsOptions;
  /** URLs by gateway id. At most GATEWAYS_MAX. */
  #urls = new Map<string, URL>();
  /** Open sockets by gateway id. At most one for each entry of #urls. */
  readonly #open = new Map<string, GatewayGossipSocket>();

  constructor(options: GatewayGossipSocketsOptions) {
    this.#options = options;
  }

  setGateways(gateways: readonly MeshGateway[]): void {
    this.#urls = new Map(gateways.slice(0, GATEWAYS_MAX).map(({ id, url }) => [id, url]));
    for (const [id, delegate] of this.#open) if (!this.#urls.has(id)) delegate.close('the gateway is no longer listed');
  }

  dial(id: string): void {
    if (this.#open.has(id)) return;
    const gateway = this.#urls.get(id);
    if (gateway === undefined) return this.#options.onDialFailed(id);
    const { identity, ticket, env, proxy, onOpened, onGossip, onClosed, onDialFailed, log } = this.#options;
    const delegate: GatewayGossipSocket = new GatewayGossipSocket({
      gateway,
      identity,
      ticket,
      env,
      proxy,
      onOpened: () => onOpened(id),
      onGossip: (bytes) => onGossip(id, bytes),
      onClosed: (reason, opened) => {
        if (this.#open.get(id) === delegate) this.#open.delete(id);
        log(`gossip with ${gateway.host}: ${reason}`);
        if (opened) onClosed(id);
        else onDialFailed(id);
      },
    });
    this.#open.set(id, delegate);
    neverRejects(delegate.open());
  }

  gossip(id: string, bytes: Uint8Array): boolean {
    return this.#open.get(id)?.gossip(bytes) ?? false;
  }

  hangUp(id: string, reason: string): void {
    this.#open.get(id)?.close(reason);
  }

  close(reason: string): void {
    for (const id of [...this.#open.keys()]) this.hangUp(id, reason);
  }
}
