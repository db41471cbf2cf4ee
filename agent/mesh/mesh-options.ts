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
  /** Name of this machine, as in the record. */
  host: string;
  /** The registry replica. It outlives sessions: a new session begins with the knowledge of the previous one. */
  replica: RegistryReplica;
  crypto: Crypto;
  /** Returns the local name of an issuer; undefined for this agent's issuer. */
  issuerName(issuer: string): string | undefined;
  /**
   * Address to listen on; undefined: the agent does not listen. If `host` is undefined, it listens on all addresses,
   * and publishes all except loopback.
   */
  listen: { host?: string; port: number } | undefined;
  peers: readonly string[];
  /** Intervals and timeouts that the operator set; undefined: the defaults. */
  tuned?: TunableOptions;
  /** This agent's release, and the releases that its peers must run. */
  releases: PeerReleases;
  env: NodeJS.ProcessEnv;
  proxy?: WebSocketOptions['proxy'];
  /**
   * Asks gateways, through this agent's tunnels, whether a session answers. Rejects or returns `unknown` if no gateway
   * knows.
   */
  askGateway(session: string): Promise<PathVerdict>;
  /** Source of random numbers. */
  random?: () => number;
  /** Handles request streams on the channels. */
  requests?: RequestChannelEvents;
  /** Called with connections that begin with an HTTP CONNECT. The callee owns them. */
  onConnect?(socket: Socket): void;
  /** True if agents that cannot reach each other may meet at this one (`--offer-relay`). */
  offerRelay?: boolean;
  /** Called with connections of other agents that carry weights. The callee owns them. */
  onWeights?(proven: ProvenConnection): void;
  /** Called when this session has ended; see shared/gossip. */
  onEnded(reason: 'evicted' | 'cloned'): void;
  log(line: string): void;
  limits?: Partial<ListenerLimits>;
}
