/**
 * This agent in the mesh. It runs the replica's gossip, turns sockets and timers into events of the core
 * (shared/gossip), and turns the core's actions into sends and dials. Nothing is stored: after a restart the agent is a
 * new session, which learns from its peers.
 */

import type { Socket } from 'node:net';
import { createGossip, type TunableOptions } from '../../shared/gossip/index.ts';
import type { GossipAction, Liveness, PathVerdict } from '../../shared/gossip/types.ts';
import type { Crypto } from '../../shared/lattice/crypto.ts';
import type { RegistryReplica } from '../../shared/lattice/replica.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import type { Update } from '../../shared/lattice/update.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { WebSocketOptions } from '../tunnel/websocket.ts';
import { hostAddresses, withPort } from './addresses.ts';
import { PeerBans } from './bans.ts';
import type { ProvenConnection } from './channel/accept.ts';
import type { Channel } from './channel/channel.ts';
import { type ChannelDialOptions, dialChannel } from './channel/dial.ts';
import { ChannelError } from './channel/error.ts';
import { Listener, type ListenerLimits } from './channel/listener.ts';
import type { PeerReleases } from './channel/peer-release.ts';
import { sessionContext } from './channel/secure.ts';
import type { SessionKey } from './channel/session-key.ts';
import { MeshChannels } from './channels.ts';
import { Circuits } from './circuit/circuits.ts';
import { PeerConnector } from './connector.ts';
import { Delegates, type MeshGateway } from './delegates.ts';
import { GatewayProbes } from './gateway-probes.ts';
import { MeshGossipDriver } from './gossip-driver.ts';
import { LivenessView, type LivenessWatcher, type PeerLiveness } from './liveness-view.ts';
import { PendingDials } from './pending-dials.ts';
import type { RequestChannelEvents } from './requests/types.ts';
import { Seeds } from './seeds.ts';
import { Tickets } from './tickets.ts';

/**
 * Interval at which the agent tries one session again that it does not reach. The core pings only its neighbors.
 * Without this, any other session that failed once would stay out of this agent's routes for good.
 */
const RECHECK_MS = 5_000;

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

export class Mesh {
  readonly replica: RegistryReplica;
  readonly channels: MeshChannels;
  readonly #options: MeshOptions;
  readonly #gossip: MeshGossipDriver;
  readonly #listener: Listener;
  readonly #dials: PendingDials;
  readonly circuits: Circuits;
  readonly #connector: PeerConnector;
  readonly #credentials: Pick<ChannelDialOptions, 'own' | 'openTicket'>;
  readonly #seeds: Seeds;
  readonly #delegates: Delegates;
  readonly #bans = new PeerBans();
  readonly #view: LivenessView;
  /** Gossip since the start, in bytes as the core wrote them. */
  readonly sent = { messages: 0, bytes: 0 };
  readonly #relays: GatewayProbes;
  #recheck: NodeJS.Timeout | undefined;
  #port: number | undefined;
  #closed = false;

  constructor(options: MeshOptions) {
    const { ticket, key, replica, crypto } = options;
    const { session } = ticket;
    this.#options = options;
    this.replica = replica;
    this.#view = new LivenessView(replica);
    this.#relays = new GatewayProbes((target) => options.askRelay(target));
    const { issuerName, env, proxy, log } = options;
    const banned = (peer: string) => this.#bans.has(peer, performance.now());
    const tickets = new Tickets({ crypto, replica, session, issuerName, banned });
    const openTicket = (bytes: Uint8Array) => tickets.open(bytes);
    const own = { context: sessionContext(key), ticket: ticket.bytes, releases: options.releases };
    this.channels = this.#makeChannels(session);
    this.#credentials = { own, openTicket };
    this.#dials = new PendingDials({
      own,
      openTicket,
      ticketOf: (peer) => replica.get(peer)?.ticket.bytes,
      take: (proven) => this.#take(proven),
    });
    this.#listener = new Listener({
      own,
      openTicket,
      onProven: (proven) => void this.channels.add(proven, false),
      ...(options.offerRelay === true
        ? { onCircuit: (proven) => neverRejects(this.circuits.relay?.take(proven)) }
        : {}),
      ...(options.onConnect === undefined ? {} : { onConnect: options.onConnect }),
      ...(options.onWeights === undefined ? {} : { onWeights: options.onWeights }),
      ...(options.limits === undefined ? {} : { limits: options.limits }),
    });
    const random = options.random ?? Math.random;
    this.circuits = new Circuits({
      own,
      session,
      replica,
      openTicket,
      offered: options.offerRelay ?? false,
      identity: { session, publicKey: key.publicKey, sign: (message) => key.sign(message) },
      env,
      proxy,
      accept: (socket, relay) => this.#listener.acceptThrough(socket, relay),
      random,
    });
    this.#connector = new PeerConnector({
      circuits: this.circuits,
      dials: this.#dials,
      addressesOf: (peer) => replica.get(peer)?.payload?.addresses ?? [],
      channels: this.channels,
      take: (proven) => this.#take(proven),
      isUsing: (peer) => options.requests?.isUsing?.(peer) ?? false,
      random,
    });
    this.#seeds = new Seeds({
      addresses: options.peers,
      dial: (address) => this.#dials.dial(undefined, [address]),
      connected: () => this.channels.size > 0,
      random,
      log,
    });
    this.#delegates = new Delegates({
      identity: { session, publicKey: key.publicKey, sign: (message) => key.sign(message) },
      ticket: ticket.bytes,
      env,
      proxy,
      onOpened: (peer) => this.#gossip.handle({ type: 'opened', peer, inbound: false }),
      onGossip: (peer, bytes) => this.#gossip.handle({ type: 'message', peer, bytes }),
      onClosed: (peer) => this.#gossip.handle({ type: 'closed', peer }),
      onDialFailed: (peer) => this.#gossip.handle({ type: 'dialFailed', peer }),
      log,
    });
    const self = { kind: 'agent', session, cluster: ticket.cluster, host: options.host } as const;
    this.#gossip = new MeshGossipDriver({
      state: createGossip({ self, replica, crypto, signer: key, options: options.tuned ?? {} }),
      act: (action) => this.#act(action),
      random,
    });
  }

  #makeChannels(session: string): MeshChannels {
    const { requests } = this.#options;
    return new MeshChannels({
      session,
      onGossip: (channel, bytes) => this.#gossip.handle({ type: 'message', peer: channel.session, bytes }),
      onFrame: (channel, frame) => {
        if (requests !== undefined) return requests.onFrame(channel, frame);
        if (frame.type === 'open')
          channel.link.put({ type: 'reset', stream: frame.stream, code: 'refused', message: '' });
      },
      onMessageEnd: (channel) => requests?.onMessageEnd(channel),
      onFault: (channel, error) => {
        const what = error instanceof Error ? (error.stack ?? error.message) : String(error);
        this.#options.log(`a fault of this agent, found by what ${channel.session} sent: ${what}`);
      },
      onChannel: (channel) => requests?.onChannel(channel),
      onChannelClosed: (channel) => requests?.onChannelClosed(channel),
      // The core closes outbound channels that it does not need. A relayed channel exists for requests and
      // PeerConnector closes it, so the core sees it as inbound.
      onOpened: ({ session: peer, dialled, through }) =>
        this.#gossip.handle({ type: 'opened', peer, inbound: !dialled || through !== undefined }),
      onClosed: (peer) => this.#gossip.handle({ type: 'closed', peer }),
    });
  }

  /** The addresses of this agent, for its payload; empty if it does not listen. */
  get addresses(): string[] {
    const { listen } = this.#options;
    if (listen === undefined || this.#port === undefined) return [];
    return listen.host === undefined ? hostAddresses(this.#port) : [withPort(listen.host, this.#port)];
  }

  /** Listens and starts. If an address cannot be listened on, the configuration is wrong. */
  async open(): Promise<void> {
    const { listen } = this.#options;
    if (listen !== undefined) this.#port = await this.#listener.open(listen.host, listen.port);
    this.#gossip.handle({ type: 'start' });
    this.#recheck = setInterval(() => this.#tryAgain(), RECHECK_MS);
    this.#seeds.open();
    this.circuits.open();
  }

  /** Adds this agent's updates to the replica and sends them to the others. */
  publish(...updates: Update[]): void {
    this.#gossip.handle({ type: 'local', updates });
  }

  /** A request got no answer from this session: probe it. */
  doubt(session: string): void {
    this.#gossip.handle({ type: 'doubt', session });
  }

  /** The operator set other times. */
  tune(options: TunableOptions): void {
    this.#gossip.handle({ type: 'tuned', options });
  }

  /** Replaces the list of issuers. Nodes of issuers that are no longer listed are removed. */
  setIssuers(accepts: (issuer: string) => boolean): void {
    this.#gossip.handle({ type: 'replaced', sessions: this.replica.setIssuers(accepts) });
  }

  /** Replaces the gateways; the list contains all that admitted this session. */
  setGateways(gateways: readonly MeshGateway[]): void {
    this.circuits.setGateways(gateways);
    this.#delegates.setGateways(gateways);
    this.#gossip.handle({ type: 'gateways', gateways: gateways.map(({ id }) => id) });
  }

  liveness(session: string): Liveness {
    return this.#view.liveness(session);
  }

  /** All known sessions, as this agent sees them. */
  view(): Generator<PeerLiveness> {
    return this.#view.view();
  }

  /** Calls `watcher` after every change until the returned function is called. */
  watch(watcher: LivenessWatcher): () => void {
    return this.#view.watch(watcher);
  }

  /**
   * Returns the open channel to a session, otherwise opens a new one.
   * @throws ChannelError no channel can be opened; the session may still be healthy
   */
  async channelTo(session: string): Promise<Channel> {
    const open = this.channels.get(session);
    if (open !== undefined) return open;
    if (this.#closed) throw new ChannelError('broken', 'this agent is leaving');
    return this.#connector.connect(session);
  }

  /**
   * This session has a channel and does not answer. True if a relay may be the cause: the caller should then ask for a
   * channel again.
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

  #take(proven: ProvenConnection): Channel | undefined {
    const { session } = proven.peer;
    const open = this.channels.get(session);
    if (open?.dialled && (open.through === undefined || proven.through !== undefined)) {
      // Two addresses led to the same agent: a configured peer's, and one that the agent published.
      proven.socket.destroy();
      return open;
    }
    const channel = this.channels.add(proven, true);
    return this.channels.get(session) ?? channel;
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
        return this.#view.judge(action.session, action.liveness);
      case 'askRelay':
        return this.#askRelay(action.target);
      case 'ended':
        return this.#options.onEnded(action.reason);
      case 'notice':
        return; // for operators of gateways
      case 'evict':
        return; // only gateways judge
    }
  }

  #send(peer: string, bytes: Uint8Array): void {
    this.sent.messages++;
    this.sent.bytes += bytes.length;
    // If it is dropped because the reader is slow, digests find it again.
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
    const missed = this.#view.missed(this.#options.random ?? Math.random);
    if (missed !== undefined) this.doubt(missed);
  }

  #askRelay(target: string): void {
    neverRejects(this.#relays.ask(target).then((verdict) => this.#gossip.handle({ type: 'relayed', target, verdict })));
  }

  /** Closes all connections and sends the reason. Idempotent. Publish LEFT first. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    clearInterval(this.#recheck);
    this.#seeds.close();
    this.#gossip.close();
    this.#listener.close();
    this.#dials.close();
    this.#connector.close();
    this.circuits.close();
    this.channels.close('leaving');
    this.#delegates.close('leaving');
  }
}
