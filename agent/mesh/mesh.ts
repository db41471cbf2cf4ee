/**
 * This agent in the mesh. It runs the replica's gossip, turns sockets and timers into events of the core
 * (shared/gossip), and carries out the core's actions by sending and dialing. Nothing is stored: after a restart the
 * agent is a new session, which learns from its peers.
 */

import type { GossipAction, Liveness } from '../../shared/gossip/gossip-events.ts';
import type { TunableOptions } from '../../shared/gossip/index.ts';
import type { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import type { Update } from '../../shared/lattice/registry-update.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { ProvenConnection } from './channel/accept-channel.ts';
import type { Channel } from './channel/channel.ts';
import { ChannelError } from './channel/channel-error.ts';
import type { Listener } from './channel/channel-listener.ts';
import { type ChannelDialOptions, dialChannel } from './channel/dial-channel.ts';
import type { Circuits } from './circuit/circuits.ts';
import type { GatewayGossipSockets, MeshGateway } from './gateway-gossip-sockets.ts';
import type { MeshGossipDriver } from './gossip-driver.ts';
import { hostAddresses, withPort } from './host-addresses.ts';
import { IndirectProbes } from './indirect-probes.ts';
import { LivenessView, type LivenessWatcher, type PeerLiveness } from './liveness-view.ts';
import type { MeshChannels } from './mesh-channels.ts';
import type { MeshOptions } from './mesh-options.ts';
import { createMeshParts } from './mesh-parts.ts';
import { PeerBans } from './peer-bans.ts';
import type { PeerConnector } from './peer-connector.ts';
import type { PendingDials } from './pending-dials.ts';
import type { HolePuncher } from './punch/hole-puncher.ts';
import type { Seeds } from './seed-addresses.ts';

/**
 * Interval at which the agent again probes one session that it did not reach. The core pings only its neighbors.
 * Without these probes, any other session that once failed would never again get requests from this agent.
 */
const RECHECK_MS = 5_000;

export class Mesh {
  readonly replica: RegistryReplica;
  readonly channels: MeshChannels;
  readonly #options: MeshOptions;
  readonly #gossip: MeshGossipDriver;
  readonly #listener: Listener;
  readonly #dials: PendingDials;
  readonly circuits: Circuits;
  readonly #connector: PeerConnector;
  readonly #puncher: HolePuncher;
  readonly #credentials: Pick<ChannelDialOptions, 'own' | 'openTicket'>;
  readonly #seeds: Seeds;
  readonly #delegates: GatewayGossipSockets;
  readonly #bans = new PeerBans();
  readonly #view: LivenessView;
  /** Gossip sent since the start. The bytes are those of the core's messages, without framing. */
  readonly sent = { messages: 0, bytes: 0 };
  readonly #gatewayProbes: IndirectProbes;
  #recheck: NodeJS.Timeout | undefined;
  #port: number | undefined;
  #closed = false;

  constructor(options: MeshOptions) {
    this.#options = options;
    this.replica = options.replica;
    this.#view = new LivenessView(options.replica);
    this.#gatewayProbes = new IndirectProbes((target) => options.askGateway(target));
    const parts = createMeshParts(options, this.#bans, (action) => this.#act(action));
    this.channels = parts.channels;
    this.circuits = parts.circuits;
    this.#credentials = parts.credentials;
    this.#dials = parts.dials;
    this.#listener = parts.listener;
    this.#connector = parts.connector;
    this.#puncher = parts.puncher;
    this.#seeds = parts.seeds;
    this.#delegates = parts.delegates;
    this.#gossip = parts.gossip;
  }

  /** The addresses of this agent for its record; empty if it does not listen. */
  get addresses(): string[] {
    const { listen } = this.#options;
    if (listen === undefined || this.#port === undefined) return [];
    return listen.host === undefined ? hostAddresses(this.#port) : [withPort(listen.host, this.#port)];
  }

  /** Listens and starts. Rejects if it cannot listen on an address, because then the configuration is wrong. */
  async open(): Promise<void> {
    const { listen } = this.#options;
    if (listen !== undefined) this.#port = await this.#listener.open(listen.host, listen.port);
    this.#gossip.handle({ type: 'start' });
    this.#recheck = setInterval(() => this.#tryAgain(), RECHECK_MS);
    this.#seeds.open();
    this.circuits.open();
  }

  /** Adds this agent's updates to the replica and sends them to its peers. */
  publish(...updates: Update[]): void {
    this.#gossip.handle({ type: 'local', updates });
  }

  /** Probes a session that did not answer a request. */
  probe(session: string): void {
    this.#gossip.handle({ type: 'doubt', session });
  }

  /** Applies the intervals and timeouts that the operator set. */
  tune(options: TunableOptions): void {
    this.#gossip.handle({ type: 'tuned', options });
  }

  /** Replaces the list of issuers. Removes nodes of issuers that are no longer listed. */
  setIssuers(accepts: (issuer: string) => boolean): void {
    this.#gossip.handle({ type: 'replaced', sessions: this.replica.setIssuers(accepts) });
  }

  /** Replaces the gateways by those that have admitted this session. */
  setGateways(gateways: readonly MeshGateway[]): void {
    this.circuits.setGateways(gateways);
    this.#delegates.setGateways(gateways);
    this.#gossip.handle({ type: 'gateways', gateways: gateways.map(({ id }) => id) });
  }

  liveness(session: string): Liveness {
    return this.#view.liveness(session);
  }

  /** All known sessions in this agent's view. */
  view(): Generator<PeerLiveness> {
    return this.#view.view();
  }

  /** Calls `watcher` after every change, until the returned function is called. */
  watch(watcher: LivenessWatcher): () => void {
    return this.#view.watch(watcher);
  }

  /**
   * Returns the open channel to a session, or opens one.
   * @throws ChannelError if no channel can be opened; the session may still be healthy
   */
  async channelTo(session: string): Promise<Channel> {
    const open = this.channels.get(session);
    if (open !== undefined) return open;
    if (this.#closed) throw new ChannelError('broken', 'this agent is shutting down');
    return this.#connector.connect(session);
  }

  /**
   * Call when this session has a channel and does not answer. True if a relay may be the cause; the caller should then
   * ask for a channel again.
   */
  stalled(session: string): boolean {
    const channel = this.channels.get(session);
    return channel !== undefined && this.#connector.stalled(channel);
  }

  /** Opens a connection for weights, which the caller owns. @throws ChannelError */
  async connectForWeights(session: string, signal: AbortSignal): Promise<ProvenConnection> {
    const { ticket, payload } = this.replica.get(session) ?? {};
    const addresses = payload?.addresses ?? [];
    if (ticket === undefined || addresses.length === 0)
      throw new ChannelError('unreachable', `${session} has published no address`);
    const to = { addresses, session, ticket: ticket.bytes, purpose: 'weights', signal } as const;
    return dialChannel({ ...this.#credentials, ...to });
  }

  #act(action: Exclude<GossipAction, { type: 'timer' }>): void {
    switch (action.type) {
      case 'send':
        return this.#send(action.peer, action.bytes);
      case 'dial':
        return this.#dial(action.peer, action.addresses);
      case 'hangUp':
        if (action.banMs > 0) this.#bans.add(action.peer, performance.now() + action.banMs);
        this.channels.hangUp(action.peer, action.reason);
        return this.#delegates.hangUp(action.peer, action.reason);
      case 'changed':
        this.circuits.changed(action.sessions);
        return this.#view.changed(action.sessions);
      case 'liveness':
        return this.#view.setLiveness(action.session, action.liveness);
      case 'askGateway':
        return this.#askGateway(action.target);
      case 'ended':
        return this.#options.onEnded(action.reason);
      case 'notice':
        return; // an event for operators of gateways
      case 'evict':
        return; // only gateways decide evictions
    }
  }

  #send(peer: string, bytes: Uint8Array): void {
    this.sent.messages++;
    this.sent.bytes += bytes.length;
    // A message is dropped if its reader is slow. Digests then find the missing updates.
    if (this.channels.get(peer)?.gossip(bytes) === undefined) this.#delegates.gossip(peer, bytes);
  }

  #dial(peer: string, addresses: readonly string[]): void {
    if (peer.startsWith('gw:')) return this.#delegates.dial(peer);
    if (this.channels.get(peer) !== undefined) return;
    const relayed = this.#connector.wasRelayed(peer);
    if ((addresses.length === 0 && !relayed) || this.#bans.has(peer, performance.now())) return this.#dialFailed(peer);
    const channel = relayed ? this.#connector.connect(peer) : this.#dials.dial(peer, addresses);
    channel.catch(() => {
      if (this.channels.get(peer) === undefined) this.#dialFailed(peer);
    });
  }

  #dialFailed(peer: string): void {
    this.#gossip.handle({ type: 'dialFailed', peer });
  }

  #tryAgain(): void {
    this.#connector.tick(performance.now());
    const unreachable = this.#view.randomUnreachable(this.#options.random ?? Math.random);
    if (unreachable !== undefined) this.probe(unreachable);
  }

  #askGateway(target: string): void {
    neverRejects(
      this.#gatewayProbes
        .ask(target)
        .then((verdict) => this.#gossip.handle({ type: 'gatewayAnswered', target, verdict })),
    );
  }

  /** Sends the reason on all connections and closes them. Call it after LEFT was published. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    clearInterval(this.#recheck);
    this.#seeds.close();
    this.#gossip.close();
    this.#listener.close();
    this.#dials.close();
    this.#connector.close();
    this.#puncher.close();
    this.circuits.close();
    this.channels.close('leaving');
    this.#delegates.close('leaving');
  }
}
