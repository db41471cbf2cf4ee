/** The other agents, as weights need them. The mesh is one form of it; a test has another. */
import type { Duplex } from 'node:stream';

export interface PeerName {
  session: string;
  /** The provider as lists here write it: `name`, or `name@issuer` where another issuer admitted it. */
  provider: string;
  cluster: string;
}

export interface Peers {
  /** Undefined while this node is in no mesh. */
  own(): PeerName | undefined;
  /** Nodes that live, by gossip, and can be dialled. */
  others(): PeerName[];
  /** When one of them came or went, on the clock of `performance.now()`. */
  changedAt(): number;
  /** A connection that both ends have proven themselves on, for HTTP. */
  connect(session: string, signal: AbortSignal): Promise<Duplex>;
}
