/**
 * The agent's data about the network that outlives its sessions: the replica, the list of issuers, and the paths to
 * gateways. Each session has its own mesh, because a session's key is its name in the mesh.
 */

import { type AgentFailureDetection, MEMBERSHIP_DEFAULTS, tunedOptions } from '../../shared/gossip/index.ts';
import { issuerId } from '../../shared/lattice/gateway-certificate.ts';
import { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { LOCAL_ISSUER } from '../../shared/routing/trusted-providers.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import type { StartConfig } from '../config/start-config.ts';
import { nodeCrypto } from '../host/node-crypto.ts';
import { ownRelease } from '../host/own-release.ts';
import type { SessionKey } from '../mesh/channel/session-key.ts';
import { Mesh } from '../mesh/mesh.ts';
import type { MeshOptions } from '../mesh/mesh-options.ts';
import { ProxyRelay } from '../mesh/proxy-relay/proxy-relay.ts';
import { relayProxyUrl } from '../mesh/proxy-relay/relay-credentials.ts';
import { RelayLocation } from '../mesh/proxy-relay/relay-location.ts';
import { GATEWAYS_MAX, type GatewayAdmission, type OtherGateway } from '../tunnel/gateway-admission.ts';
import { authority } from '../tunnel/open-websocket.ts';
import type { GatewayHints } from '../tunnel/other-gateways.ts';
import { collapseRepeats } from './collapse-repeats.ts';

interface MeshMembershipOptions {
  config: Pick<StartConfig, 'gateways' | 'token' | 'mesh' | 'releaseDir'>;
  env: NodeJS.ProcessEnv;
  /** Name of this machine. */
  host: string;
  log(line: string): void;
}

/** A session's data that its mesh needs. */
export interface MeshMember {
  ticket: Ticket;
  key: SessionKey;
  /** Asks this session's gateways whether another session is alive. */
  probe(session: string): Promise<ProbeVerdict>;
  onEnded(reason: string): void;
}

export class MeshMembership {
  readonly replica: RegistryReplica;
  readonly #options: MeshMembershipOptions;
  readonly #relay: ProxyRelay;
  /** The relay that this agent uses. */
  readonly #relayLocation: RelayLocation | undefined;
  /** Local names of issuers by issuer id, as the gateway that admitted this agent uses them. */
  #issuers = new Map<string, string>();
  #own: string | undefined;
  /** Gateways that are not configured, but were named by another gateway. */
  #learned: readonly OtherGateway[] = [];
  #membership: AgentFailureDetection = MEMBERSHIP_DEFAULTS;
  #requests: MeshOptions['requests'];
  #onWeights: MeshOptions['onWeights'];

  constructor(options: MeshMembershipOptions) {
    const { config, env, log } = options;
    this.#options = options;
    this.replica = new RegistryReplica({ crypto: nodeCrypto, accepts: (issuer) => this.#issuers.has(issuer) });
    this.#relayLocation = config.mesh.relay === undefined ? undefined : new RelayLocation(config.mesh.relay);
    this.#relay = new ProxyRelay({
      gateways: config.gateways,
      tokens: [config.token],
      offered: config.mesh.offerRelay,
      env,
      log,
    });
  }

  /** Passes request streams of all later meshes to `requests`. */
  serve(requests: MeshOptions['requests']): void {
    this.#requests = requests;
  }

  /** Passes weight connections of all later meshes to `onWeights`. */
  serveWeights(onWeights: MeshOptions['onWeights']): void {
    this.#onWeights = onWeights;
  }

  /** Replaces the list of issuers whose tickets are valid. */
  learn({ ticket, issuers, ...hints }: GatewayAdmission): void {
    this.learnHints(hints);
    const named = issuers.map(({ name, root }): [string, string] => [issuerId(root, nodeCrypto), name]);
    this.#issuers = new Map([...named, [ticket.issuer, LOCAL_ISSUER]]);
    this.#own = ticket.issuer;
    this.replica.setIssuers((issuer) => this.#issuers.has(issuer));
  }

  /** Stores the other gateways and the mesh's settings that a gateway reported. */
  learnHints({ gateways, membership }: GatewayHints): void {
    this.#learned = gateways;
    this.#membership = membership;
  }

  /** How long nodes that LEFT are shown, in milliseconds. */
  get retentionMs(): number {
    return this.#membership.retention_ms;
  }

  /** The configured gateways, then the learned ones. A session serves all of them. */
  get gateways(): OtherGateway[] {
    const configured = this.#options.config.gateways.map((url) => ({ url, own: true }));
    const hrefs = new Set(configured.map(({ url }) => url.href));
    return [...configured, ...this.#learned.filter(({ url }) => !hrefs.has(url.href))].slice(0, GATEWAYS_MAX);
  }

  /**
   * Gateways to which the join token may be sent. A peer institution's gateway could use the token itself, and the
   * issuer of a ticket controls the node.
   */
  get admitting(): URL[] {
    return this.gateways.flatMap(({ url, own }) => (own ? [url] : []));
  }

  /** The issuer of the first admission; undefined before it. */
  get issuer(): string | undefined {
    return this.#own;
  }

  /** The local name of an issuer; undefined for this agent's issuer. */
  issuerName(issuer: string): string | undefined {
    return issuer === this.#own ? undefined : this.#issuers.get(issuer);
  }

  /**
   * The proxy for all requests to gateways; undefined: they are reached directly. A node without egress uses another
   * agent as its proxy.
   */
  get proxy(): ((gateway: URL) => URL) | undefined {
    const relay = this.#relayLocation;
    return relay === undefined ? undefined : (gateway) => this.#through(relay.address, gateway);
  }

  /** For the admission: proxies through the configured peers, used if no gateway answers directly. */
  get peerProxies(): ((gateway: URL) => URL)[] {
    return this.#options.config.mesh.peers.map((peer) => (gateway) => this.#through(peer, gateway));
  }

  #through(agent: string, gateway: URL): URL {
    return relayProxyUrl(agent, authority(gateway), this.#options.config.token);
  }

  /** Opens the mesh of a new session. It listens, and connects to the peers that it knows. */
  async join(member: MeshMember): Promise<Mesh> {
    const { releaseDir, mesh: settings } = this.#options.config;
    const { listen, peerReleases: required } = settings;
    const releases = { own: await ownRelease(releaseDir), required };
    const mesh = this.#mesh(member, listen, releases);
    try {
      await mesh.open();
      return mesh;
    } catch (error) {
      mesh.close();
      if (listen === undefined || listen.port === 0) throw error;
      // Another job on this node, or the previous session, uses the port. The mesh publishes the port that it takes
      // instead.
      const why = errorText(error);
      this.#options.log(`warning: the mesh uses a free port instead: ${why}`);
      const elsewhere = this.#mesh(member, { ...listen, port: 0 }, releases);
      await elsewhere.open();
      return elsewhere;
    }
  }

  #mesh(
    { ticket, key, probe, onEnded }: MeshMember,
    listen: MeshOptions['listen'],
    releases: MeshOptions['releases'],
  ): Mesh {
    const { config, env, host, log } = this.#options;
    return new Mesh({
      key,
      ticket,
      host,
      replica: this.replica,
      crypto: nodeCrypto,
      issuerName: (issuer) => this.issuerName(issuer),
      listen,
      peers: config.mesh.peers,
      tuned: tunedOptions(this.#membership),
      releases,
      env,
      proxy: this.proxy,
      askGateway: probe,
      ...(this.#requests === undefined ? {} : { requests: this.#requests }),
      ...(this.#onWeights === undefined ? {} : { onWeights: this.#onWeights }),
      onConnect: (socket) => neverRejects(this.#relay.take(socket)),
      offerRelay: config.mesh.offerRelay,
      onEnded,
      log: collapseRepeats(log),
    });
  }

  close(): void {
    this.#relay.close();
  }
}
