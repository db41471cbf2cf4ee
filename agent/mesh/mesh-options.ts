import type { Socket } from 'node:net';
import type { PathVerdict } from '../../shared/gossip/gossip-events.ts';
import type { TunableOptions } from '../../shared/gossip/index.ts';
import type { Crypto } from '../../shared/lattice/crypto-interface.ts';
import type { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import type { WebSocketOptions } from '../tunnel/open-websocket.ts';
import type { ProvenConnection } from './channel/accept-channel.ts';
import type { ListenerLimits } from './channel/channel-listener.ts';
import type { PeerReleases } from './channel/peer-release.ts';
import type { SessionKey } from './channel/session-key.ts';
import type { RequestChannelEvents } from './requests/request-channel.ts';

export interface MeshOptions {
  key: SessionKey;
  ticket: Ticket;
  /** Name of this machine, as in the payload. */
  host: string;
  /** Outlives sessions of this agent: a new session begins with the previous one's knowledge. */
  replica: RegistryReplica;
  crypto: Crypto;
  /** The name by which lists here call an issuer; undefined for this agent's issuer. */
  issuerName(issuer: string): string | undefined;
  /**
   * Address to listen on; undefined: the agent does not listen. `host` undefined: it listens on all addresses, and
   * publishes all except loopback.
   */
  listen: { host?: string; port: number } | undefined;
  peers: readonly string[];
  /** Times that the operator set; undefined: the defaults. */
  tuned?: TunableOptions;
  /** This agent's release, and the releases that its peers must run. */
  releases: PeerReleases;
  env: NodeJS.ProcessEnv;
  proxy?: WebSocketOptions['proxy'];
  /**
   * Asks whether a session answers, through this agent's tunnels. Rejects or returns unknown if no gateway knows.
   */
  askRelay(session: string): Promise<PathVerdict>;
  /** Source of all random choices. */
  random?: () => number;
  /** Streams of requests on the channels. */
  requests?: RequestChannelEvents;
  /** Connections that begin with an HTTP CONNECT. The callee owns them. */
  onConnect?(socket: Socket): void;
  /** True if agents that cannot reach each other may meet here (`--offer-relay`). */
  offerRelay?: boolean;
  /** Connections of other agents that carry weights. The callee owns them. */
  onWeights?(proven: ProvenConnection): void;
  /** This session has ended; see shared/gossip. */
  onEnded(reason: 'evicted' | 'cloned'): void;
  log(line: string): void;
  limits?: Partial<ListenerLimits>;
}
