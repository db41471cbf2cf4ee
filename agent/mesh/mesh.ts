/**
 * This agent in the mesh: it owns the replica's gossip, turns sockets and timers into events of the core (shared/gossip) and the
 * core's actions into sends and dials. Nothing of it is stored: a restart is a new session, which learns from its peers.
 */
import type { Socket } from 'node:net';
import { createGossip, type TunableOptions } from '../../shared/gossip/index.ts';
import type { GossipAction, Liveness, PathVerdict } from '../../shared/gossip/types.ts';
import type { Crypto } from '../../shared/lattice/crypto.ts';
import type { RegistryReplica } from '../../shared/lattice/replica.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import type { Update } from '../../shared/lattice/update.ts';
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
 * How often the agent tries one session again that it does not reach. The core pings only its neighbours. Without this, any other
 * session that failed once would stay out of this agent's routes for good.
 */
const RECHECK_MS = 5_000;

export interface MeshOptions {
  key: SessionKey;
  ticket: Ticket;
  /** Name of this machine, as in the payload. */
  host: string;
  /** Outlives sessions of this agent: a new one begins with what the last one knew. */
  replica: RegistryReplica;
  crypto: Crypto;
  /** How lists here call an issuer; undefined for the own one. */
  issuerName(issuer: string): string | undefined;
  /** Where to listen. `host` undefined: on all addresses, and all but loopback are published. Undefined: nowhere. */
  listen: { host?: string; port: number } | undefined;
  peers: readonly string[];
  /** Times that the operator set; default: as shipped. */
  tuned?: TunableOptions;
  /** This agent's release, and the releases that its peers have to be of. */
  releases: PeerReleases;
  env: NodeJS.ProcessEnv;
  proxy?: WebSocketOptions['proxy'];
  /** Asks whether a session answers, through this agent's own tunnels. Rejects or says unknown where none can tell. */
  askRelay(session: string): Promise<PathVerdict>;
  /** Of all choices. */
  random?: () => number;
  /** Streams of requests on the channels. */
  requests?: RequestChannelEvents;
  /** Connections that begin with an HTTP CONNECT. Owns them from then on. */
  onConnect?(socket: Socket): void;
  /** Agents that cannot reach each other may meet here (`--offer-relay`). */
  offerRelay?: boolean;
  /** Connections of other agents that carry weights. Owns them from then on. */
  onWeights?(proven: ProvenConnection): void;
  /** This session is over: see shared/gossip. */
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
  /** Of gossip, since the start: bytes as the core wrote them. */
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
      ...(options.offerRelay === true ? { onCircuit: (proven) => void this.circuits.relay?.take(proven) } : {}),
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
      // The core closes what it has no use for where this end dialled it; a relayed one is there for requests, and Connector closes it.
      onOpened: ({ session: peer, dialled, through }) =>
        this.#gossip.handle({ type: 'opened', peer, inbound: !dialled || through !== undefined }),
      onClosed: (peer) => this.#gossip.handle({ type: 'closed', peer }),
    });
  }

  /** Where others find this agent, for its payload; none where it does not listen. */
  get addresses(): string[] {
    const { listen } = this.#options;
    if (listen === undefined || this.#port === undefined) return [];
    return listen.host === undefined ? hostAddresses(this.#port) : [withPort(listen.host, this.#port)];
  }

  /** Listens and begins. An address that cannot be listened on is an error of the configuration. */
  async open(): Promise<void> {
    const { listen } = this.#options;
    if (listen !== undefined) this.#port = await this.#listener.open(listen.host, listen.port);
    this.#gossip.handle({ type: 'start' });
    this.#recheck = setInterval(() => this.#tryAgain(), RECHECK_MS);
    this.#seeds.open();
    this.circuits.open();
  }

  /** Own updates: into the replica and out to the others. */
  publish(...updates: Update[]): void {
    this.#gossip.handle({ type: 'local', updates });
  }

  /** A request found this session silent: have a look. */
  doubt(session: string): void {
    this.#gossip.handle({ type: 'doubt', session });
  }

  /** The operator set other times. */
  tune(options: TunableOptions): void {
    this.#gossip.handle({ type: 'tuned', options });
  }

  /** Another list of issuers: nodes of those that are not on it any more go. */
  setIssuers(accepts: (issuer: string) => boolean): void {
    this.#gossip.handle({ type: 'replaced', sessions: this.replica.setIssuers(accepts) });
  }

  /** All gateways that took this session in, each time. */
  setGateways(gateways: readonly MeshGateway[]): void {
    this.circuits.setGateways(gateways);
    this.#delegates.setGateways(gateways);
    this.#gossip.handle({ type: 'gateways', gateways: gateways.map(({ id }) => id) });
  }

  liveness(session: string): Liveness {
    return this.#view.liveness(session);
  }

  /** All that is known, as seen from here. */
  view(): Generator<PeerLiveness> {
    return this.#view.view();
  }

  /** Calls `watcher` after every change until the returned function is called. */
  watch(watcher: LivenessWatcher): () => void {
    return this.#view.watch(watcher);
  }

  /** The channel to a session: the one there is, else a new one. @throws ChannelError none can be had; it may be well all the same */
  async channelTo(session: string): Promise<Channel> {
    const open = this.channels.get(session);
    if (open !== undefined) return open;
    if (this.#closed) throw new ChannelError('broken', 'this agent is leaving');
    return this.#connector.connect(session);
  }

  /** This session has a channel and gives no sign of life. True where a relay may be to blame: ask for a channel again. */
  stalled(session: string): boolean {
    const channel = this.channels.get(session);
    return channel !== undefined && this.#connector.stalled(channel);
  }

  /** A connection for weights, which the caller owns. @throws ChannelError */
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
      // Two ways led to one agent: a known peer's address and what it has published.
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
    // What is dropped before a slow reader is found again by digests.
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
    void this.#relays.ask(target).then((verdict) => this.#gossip.handle({ type: 'relayed', target, verdict }));
  }

  /** Says good-bye to all. Idempotent. Publish LEFT before. */
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
