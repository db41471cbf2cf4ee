/** The other agents, as weights need them. The mesh implements this, and a fake in tests. */
import type { Duplex } from 'node:stream';

export interface PeerName {
  session: string;
  /** The provider's local name: `name`, or `name@issuer` if another issuer admitted the node. */
  provider: string;
  cluster: string;
}

export interface Peers {
  /** Undefined while this node is in no mesh. */
  self(): PeerName | undefined;
  /** Nodes that are alive, according to gossip, and can be dialed. */
  others(): PeerName[];
  /** When another node last joined or left, by `performance.now()`. */
  changedAt(): number;
  /** Opens a mutually authenticated connection for HTTP. */
  connect(session: string, signal: AbortSignal): Promise<Duplex>;
}
