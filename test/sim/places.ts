/** The members of a world, and the distances between them. */
import type { PeerId } from '../../shared/gossip/index.ts';
import type { Clock } from './clock.ts';
import type { Issuer, Membership } from './issuer.ts';
import type { Network } from './network.ts';
import type { SimNode } from './node.ts';

export interface Agent {
  kind: 'agent';
  node: SimNode;
  membership: Membership;
  host: string;
  cluster: string;
  /** True if no other node can dial it. */
  hidden: boolean;
  /** By gateway id. */
  tunnels: Map<PeerId, boolean>;
}

export interface Gateway {
  kind: 'gateway';
  node: SimNode;
  id: PeerId;
  host: string;
  issuer: Issuer;
  hidden: false;
}

export type Place = Agent | Gateway;

export function peerId(place: Place): PeerId {
  return place.kind === 'gateway' ? place.id : place.membership.session;
}

export class Places {
  readonly agents: Agent[] = [];
  readonly gateways: Gateway[] = [];
  readonly byPeer = new Map<PeerId, Place>();
  readonly clock: Clock;
  readonly network: Network;

  constructor(clock: Clock, network: Network) {
    this.clock = clock;
    this.network = network;
  }

  add(place: Place): void {
    if (place.kind === 'agent') this.agents.push(place);
    else this.gateways.push(place);
    this.byPeer.set(peerId(place), place);
  }

  /** One way, in milliseconds. */
  distance(a: Place, b: Place): number {
    const { clusterMs, gatewayMs } = this.network.options;
    return a.kind === 'gateway' || b.kind === 'gateway' ? gatewayMs : clusterMs;
  }

  isCut(a: Place, b: Place): boolean {
    return this.network.cut(a.host, b.host) || this.network.cut(b.host, a.host);
  }

  /** Runs after one trip; never lost. */
  later(from: Place, to: Place, run: () => void): void {
    this.clock.after(this.network.delay(this.distance(from, to)), run);
  }
}
