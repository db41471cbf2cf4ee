/** The other agents, as weights need them. Implemented by the mesh, and by a fake in tests. */
import type { Duplex } from 'node:stream';

export interface PeerName {
  session: string;
  /** The provider's local name: `name`, or `name@issuer` if another issuer admitted it. */
  provider: string;
  cluster: string;
}

export interface Peers {
  /** Undefined while this node is in no mesh. */
  own(): PeerName | undefined;
  /** Nodes that are alive, by gossip, and can be dialed. */
  others(): PeerName[];
  /** When one of them last joined or left, by `performance.now()`. */
  changedAt(): number;
  /** A mutually authenticated connection, for HTTP. */
  connect(session: string, signal: AbortSignal): Promise<Duplex>;
}
