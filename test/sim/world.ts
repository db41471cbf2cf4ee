/**
 * Clusters of agents and their gateways in virtual time. Everything that decides is real (shared/gossip, shared/lattice); what is made up is
 * the network, the CPU, the signatures and the tunnels, whose messages are counted as the agents' own.
 */
import {
  type Action,
  type GossipMemory,
  type GossipOptions,
  livenessOf,
  type PeerId,
  remember,
  type Verdict,
} from '../../shared/gossip/index.ts';
import { keyName } from '../../shared/lattice/certificate.ts';
import type { Lifecycle } from '../../shared/lattice/node.ts';
import { Replica } from '../../shared/lattice/replica.ts';
import { encodeUpdate, type Update } from '../../shared/lattice/update.ts';
import { Clock } from './clock.ts';
import { standInCrypto, standInSigner } from './crypto.ts';
import { EPOCH_S, Issuer, type Membership } from './issuer.ts';
import { DEFAULT_NETWORK, Network, type NetworkOptions } from './network.ts';
import { SimNode } from './node.ts';
import { fork, type Rng, seeded } from './random.ts';

export interface WorldOptions {
  seed: number;
  /** Agents per cluster. */
  clusters: number[];
  gateways: number;
  network: Partial<NetworkOptions>;
  gossip: Partial<GossipOptions>;
  stalls: boolean;
  /** Agents on one machine. */
  perHost: number;
  /** What the i-th agent's clock is off by, ms. */
  skew: (agent: number) => number;
}

export const DEFAULT_WORLD: WorldOptions = {
  seed: 1,
  clusters: [8],
  gateways: 1,
  network: {},
  gossip: {},
  stalls: true,
  perHost: 1,
  skew: () => 0,
};

/** How long a relay waits for an agent before it says silent; how long a tunnel lives after its path is cut. */
const RELAY_MS = 350;
const TUNNEL_TIMEOUT_MS = 20_000;
/** Round trips before a channel is open: TCP, TLS with tickets. */
const HANDSHAKE_TRIPS = 2.5;

interface Channel {
  a: Agentlike;
  b: Agentlike;
  open: boolean;
  /** A cut took something that was sent on it. */
  broken: boolean;
}

export interface Agent {
  kind: 'agent';
  node: SimNode;
  membership: Membership;
  host: string;
  cluster: string;
  /** Nobody can dial it. */
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

type Agentlike = Agent | Gateway;

export interface Told {
  at: number;
  node: string;
  action: Action;
}

export class World {
  readonly clock = new Clock();
  readonly options: WorldOptions;
  readonly crypto = standInCrypto();
  readonly network: Network;
  readonly rng: Rng;
  readonly issuers: Issuer[] = [];
  readonly agents: Agent[] = [];
  readonly gateways: Gateway[] = [];
  readonly #byPeer = new Map<PeerId, Agentlike>();
  readonly #channels = new Map<string, Channel>();
  /** Every notable action, in order; tests read it. */
  readonly told: Told[] = [];
  /** Hears each action with the virtual time at which it took effect. */
  listener: (peer: PeerId, action: Action, at: number) => void = () => {};
  #hosts = 0;
  /** What everybody knows at the beginning. */
  readonly #founding: Replica;

  constructor(options: Partial<WorldOptions> = {}) {
    this.options = { ...DEFAULT_WORLD, ...options };
    const rng = seeded(this.options.seed);
    this.rng = fork(rng);
    this.network = new Network({ ...DEFAULT_NETWORK, ...this.options.network }, fork(rng));
    for (let i = 0; i < Math.max(1, this.options.gateways); i++) this.issuers.push(new Issuer(this.crypto, this.rng));
    this.#founding = this.replica();
    // Worlds begin settled: everybody knows everybody.
    const members = this.options.clusters.flatMap((size, c) => {
      const issuer = this.#issuer(c % this.issuers.length);
      return Array.from({ length: size }, () => this.#admit(issuer, `c${c}`, this.#newHost()));
    });
    for (const member of members) {
      member.say('SERVING');
      this.#founding.load(member.full());
    }
    for (let i = 0; i < this.options.gateways; i++) this.#addGateway(this.#issuer(i), undefined, this.#founding.fork());
    for (const member of members) this.#embody(member, this.#founding.fork());
    for (const gateway of this.gateways) gateway.node.take({ type: 'start' });
    for (const agent of this.agents) this.#startAgent(agent);
  }

  #issuer(i: number): Issuer {
    const issuer = this.issuers[i];
    if (issuer === undefined) throw new Error(`no issuer ${i}`);
    return issuer;
  }

  get issuer(): Issuer {
    return this.#issuer(0);
  }

  get gateway(): Gateway {
    const gateway = this.gateways[0];
    if (gateway === undefined) throw new Error('this world has no gateway');
    return gateway;
  }

  agent(index: number): Agent {
    const agent = this.agents[index];
    if (agent === undefined) throw new Error(`no agent ${index}`);
    return agent;
  }

  /** Seconds since 1970. */
  get nowS(): number {
    return Math.floor(EPOCH_S + this.clock.now / 1000);
  }

  replica(): Replica {
    const ids = new Set(this.issuers.map((issuer) => issuer.id));
    return new Replica({ crypto: this.crypto, accepts: (issuer) => ids.has(issuer) });
  }

  #addGateway(issuer: Issuer, memory: GossipMemory | undefined, replica = this.replica()): Gateway {
    const id = `gw:${keyName(issuer.gateway.publicKey)}`;
    const host = `gateway-${id.slice(3, 9)}`;
    const node = new SimNode({
      name: host,
      self: { kind: 'gateway', id, issuer: issuer.id },
      replica,
      crypto: this.crypto,
      signer: undefined,
      options: this.options.gossip,
      memory,
      clock: this.clock,
      rng: fork(this.rng),
      stalls: this.options.stalls,
      onAction: (from, action, at) => this.#act(id, from, action, at),
    });
    const gateway: Gateway = { kind: 'gateway', node, id, host, issuer, hidden: false };
    this.gateways.push(gateway);
    this.#byPeer.set(id, gateway);
    return gateway;
  }

  #newHost(): string {
    return `host-${Math.floor(this.#hosts++ / this.options.perHost)}`;
  }

  #admit(issuer: Issuer, cluster: string, host: string): Membership {
    return issuer.admit({ provider: 'lab', cluster, birth: this.nowS }, standInSigner(this.rng), host);
  }

  #embody(membership: Membership, replica: Replica): Agent {
    const { session, signer, cluster, host } = membership;
    const node = new SimNode({
      name: session.slice(0, 6),
      self: { kind: 'agent', session, cluster, host },
      replica,
      crypto: this.crypto,
      signer,
      options: this.options.gossip,
      clock: this.clock,
      rng: fork(this.rng),
      stalls: this.options.stalls,
      skewMs: this.options.skew(this.agents.length),
      onAction: (from, action, at) => this.#act(session, from, action, at),
    });
    const agent: Agent = { kind: 'agent', node, membership, host, cluster, hidden: false, tunnels: new Map() };
    this.agents.push(agent);
    this.#byPeer.set(session, agent);
    return agent;
  }

  #startAgent(agent: Agent): void {
    agent.node.take({ type: 'start' });
    agent.node.take({ type: 'local', updates: [agent.membership.full()] });
    for (const { id } of this.gateways) this.#openTunnel(agent, id);
  }

  /** A new agent with a fresh session; it knows nobody unless a replica is given. */
  join(cluster: string, host = this.#newHost(), replica = this.replica()): Agent {
    const agent = this.#embody(this.#admit(this.issuer, cluster, host), replica);
    agent.membership.say('JOIN');
    this.#startAgent(agent);
    const first = agent.membership.full();
    for (const { id } of this.gateways) this.#record(agent, id, [first]);
    return agent;
  }

  /** The owner says something new, to its core and up its tunnels. */
  say(agent: Agent, state: Lifecycle, changesPayload = false): void {
    this.tell(agent, [agent.membership.say(state, changesPayload)]);
  }

  tell(agent: Agent, updates: Update[]): void {
    agent.node.take({ type: 'local', updates });
    for (const { id } of this.gateways) this.#record(agent, id, updates);
  }

  /** A session ends as a process exits: it says LEFT, closes its channels, and another begins on the same host. */
  rejoin(agent: Agent): Agent {
    this.say(agent, 'LEFT');
    this.clock.after(5, () => this.#vanish(agent));
    const next = this.join(agent.cluster, agent.host, agent.node.replica);
    next.hidden = agent.hidden;
    this.say(next, 'SERVING');
    return next;
  }

  /** kill -9: its machine closes what it had open. */
  kill(agent: Agentlike): void {
    this.#vanish(agent);
  }

  #vanish(agent: Agentlike): void {
    if (agent.node.status === 'dead') return;
    agent.node.kill();
    for (const [key, channel] of this.#channels) {
      if (channel.a !== agent && channel.b !== agent) continue;
      this.#channels.delete(key);
      channel.open = false;
      const other = channel.a === agent ? channel.b : channel.a;
      this.#later(agent, other, () => this.#tellClosed(other, this.#peerId(agent)));
    }
    if (agent.kind === 'agent') for (const gateway of this.gateways) this.#closeTunnel(agent, gateway.id);
    else for (const other of this.agents) other.tunnels.set(agent.id, false);
  }

  /** The machine is gone: nothing is closed. */
  powerOff(agent: Agent): void {
    agent.node.kill();
    for (const gateway of this.gateways)
      this.clock.after(TUNNEL_TIMEOUT_MS, () => this.#closeTunnel(agent, gateway.id));
  }

  /** A gateway's object comes back: from its storage and memory, or with nothing. */
  restartGateway(gateway: Gateway, keeps: 'all' | 'nothing'): Gateway {
    const memory = keeps === 'all' ? remember(gateway.node.state) : undefined;
    this.kill(gateway);
    this.gateways.splice(this.gateways.indexOf(gateway), 1);
    const next = this.#addGateway(gateway.issuer, memory, keeps === 'all' ? gateway.node.replica : this.replica());
    next.node.take({ type: 'start' });
    for (const agent of this.agents) {
      if (agent.node.status === 'dead') continue;
      this.clock.after(this.rng() * 3000, () => {
        this.#openTunnel(agent, next.id);
        this.#record(agent, next.id, [agent.membership.full()]);
      });
    }
    return next;
  }

  openTunnels(agent: Agent): void {
    for (const { id } of this.gateways) {
      this.#openTunnel(agent, id);
      this.#record(agent, id, [agent.membership.full()]);
    }
  }

  closeTunnels(agent: Agent): void {
    for (const { id } of this.gateways) this.#closeTunnel(agent, id);
  }

  /** Tunnels whose end reached the gateway. */
  readonly #ended = new Set<string>();

  gatewayKnowsClosed(session: string): boolean {
    return this.#ended.has(session);
  }

  #openTunnel(agent: Agent, id: PeerId): void {
    const gateway = this.#byPeer.get(id);
    if (gateway?.node.status !== 'running' || agent.node.status === 'dead' || this.#isCut(agent, gateway)) return;
    agent.tunnels.set(id, true);
    agent.node.take({ type: 'gateways', gateways: this.gateways.map((known) => known.id) });
    this.#later(agent, gateway, () =>
      gateway.node.take({ type: 'tunnel', session: agent.membership.session, open: true }),
    );
  }

  #closeTunnel(agent: Agent, id: PeerId): void {
    if (agent.tunnels.get(id) !== true) return;
    agent.tunnels.set(id, false);
    const gateway = this.#byPeer.get(id);
    if (gateway === undefined) return;
    const { session } = agent.membership;
    this.clock.after(this.network.delay(this.network.options.gatewayMs), () => {
      this.#ended.add(session);
      gateway.node.take({ type: 'tunnel', session, open: false });
    });
  }

  /** Hosts that cannot talk; channels stay open and swallow what is sent, tunnels end after their heartbeat. */
  cut(cut: (from: string, to: string) => boolean): void {
    this.network.cut = cut;
    this.clock.after(TUNNEL_TIMEOUT_MS, () => {
      for (const agent of this.agents)
        for (const gateway of this.gateways) if (this.#isCut(agent, gateway)) this.#closeTunnel(agent, gateway.id);
    });
  }

  /** The cut ends. Sockets to gateways that lost something are reset by then; agents' channels go on with what was lost missing. */
  heal(): void {
    this.network.cut = () => false;
    for (const { a, b, broken } of [...this.#channels.values()]) {
      if (!broken || (a.kind === 'agent' && b.kind === 'agent')) continue;
      this.#hangUp(a, this.#peerId(b));
    }
    for (const agent of this.agents) {
      if (agent.node.status === 'dead') continue;
      for (const { id } of this.gateways) {
        if (agent.tunnels.get(id) === true) continue;
        this.clock.after(this.rng() * 2000, () => {
          this.#openTunnel(agent, id);
          this.#record(agent, id, [agent.membership.full()]);
        });
      }
    }
  }

  #isCut(a: Agentlike, b: Agentlike): boolean {
    return this.network.cut(a.host, b.host) || this.network.cut(b.host, a.host);
  }

  /** Frame RECORD of the tunnel: reliable while it is open. */
  #record(agent: Agent, id: PeerId, updates: Update[]): void {
    const gateway = this.#byPeer.get(id);
    if (gateway === undefined || agent.tunnels.get(id) !== true || this.#isCut(agent, gateway)) return;
    agent.node.count(updates.reduce((sum, update) => sum + encodeUpdate(update).length, 0));
    // In order: it is one socket.
    const key = `${this.#peerId(agent)} ${id}`;
    const at = Math.max(
      this.clock.now + this.network.delay(this.network.options.gatewayMs),
      this.#lastRecord.get(key) ?? 0,
    );
    this.#lastRecord.set(key, at);
    this.clock.at(at, () => gateway.node.take({ type: 'local', updates }));
  }

  readonly #lastRecord = new Map<string, number>();

  run(ms: number, stop?: () => boolean): void {
    this.clock.run(this.clock.now + ms, stop);
  }

  /** @returns ms until `holds` did, undefined if not within `ms` */
  until(holds: () => boolean, ms: number, stepMs = 10): number | undefined {
    const from = this.clock.now;
    while (!holds()) {
      if (this.clock.now - from >= ms) return undefined;
      this.run(stepMs);
    }
    return this.clock.now - from;
  }

  #peerId(agent: Agentlike): PeerId {
    return agent.kind === 'gateway' ? agent.id : agent.membership.session;
  }

  #later(from: Agentlike, to: Agentlike, run: () => void): void {
    this.clock.after(this.network.delay(this.#distance(from, to)), run);
  }

  #distance(a: Agentlike, b: Agentlike): number {
    const { clusterMs, gatewayMs } = this.network.options;
    return a.kind === 'gateway' || b.kind === 'gateway' ? gatewayMs : clusterMs;
  }

  #act(from: PeerId, node: SimNode, action: Action, at: number): void {
    const agent = this.#byPeer.get(from);
    if (agent?.node !== node) return;
    this.listener(from, action, at);
    switch (action.type) {
      case 'send':
        return this.#send(agent, action.peer, action.bytes, at);
      case 'dial':
        return this.clock.at(at, () => this.#dial(agent, action.peer));
      case 'hangUp':
        this.told.push({ at, node: from, action });
        return this.#hangUp(agent, action.peer);
      case 'askRelay':
        return this.clock.at(at, () => this.#askRelay(agent, action.target));
      case 'evict':
        this.told.push({ at, node: from, action });
        if (agent.kind === 'gateway') agent.node.take({ type: 'local', updates: [agent.issuer.evict(action.session)] });
        return;
      case 'liveness':
      case 'ended':
      case 'notice':
        this.told.push({ at, node: from, action });
        return;
      case 'changed':
      case 'timer':
        return;
    }
  }

  #key(a: PeerId, b: PeerId): string {
    return a < b ? `${a} ${b}` : `${b} ${a}`;
  }

  channel(a: PeerId, b: PeerId): boolean {
    return this.#channels.has(this.#key(a, b));
  }

  #send(from: Agentlike, to: PeerId, bytes: Uint8Array, at: number): void {
    const channel = this.#channels.get(this.#key(this.#peerId(from), to));
    if (channel === undefined) return;
    const target = channel.a === from ? channel.b : channel.a;
    from.node.count(bytes.length);
    const delay = this.network.travel(from.host, target.host, this.#distance(from, target));
    if (this.network.cut(from.host, target.host)) channel.broken = true;
    if (delay === undefined) return;
    this.clock.at(at + delay, () => {
      if (!channel.open) return;
      target.node.received.messages++;
      target.node.take({ type: 'message', peer: this.#peerId(from), bytes });
    });
  }

  #dial(from: Agentlike, to: PeerId): void {
    const target = this.#byPeer.get(to);
    const fail = (ms: number) => this.clock.after(ms, () => from.node.take({ type: 'dialFailed', peer: to }));
    const { dialTimeoutMs } = this.network.options;
    if (target === undefined) return fail(1);
    const trip = 2 * this.#distance(from, target);
    if (this.#isCut(from, target) || target.hidden) return fail(dialTimeoutMs);
    if (target.node.status === 'dead') return fail(this.network.delay(trip));
    if (target.node.status === 'hung') return fail(dialTimeoutMs);
    this.clock.after(this.network.delay(trip * HANDSHAKE_TRIPS), () => {
      const key = this.#key(this.#peerId(from), to);
      if (from.node.status === 'dead') return;
      if (target.node.status !== 'running' || this.#isCut(from, target)) return fail(dialTimeoutMs);
      // Both dialled: the channel that came first stays.
      if (this.#channels.has(key)) return;
      this.#channels.set(key, { a: from, b: target, open: true, broken: false });
      from.node.take({ type: 'opened', peer: to, inbound: false });
      target.node.take({ type: 'opened', peer: this.#peerId(from), inbound: true });
    });
  }

  #hangUp(from: Agentlike, to: PeerId): void {
    const key = this.#key(this.#peerId(from), to);
    const channel = this.#channels.get(key);
    if (channel === undefined) return;
    const other = channel.a === from ? channel.b : channel.a;
    channel.open = false;
    this.#channels.delete(key);
    from.node.take({ type: 'closed', peer: to });
    this.#later(from, other, () => this.#tellClosed(other, this.#peerId(from)));
  }

  /** Drivers say nothing of a channel that a newer one has replaced. */
  #tellClosed(node: Agentlike, peer: PeerId): void {
    if (!this.channel(this.#peerId(node), peer)) node.node.take({ type: 'closed', peer });
  }

  /** PROBE over the own tunnel, to the target's tunnel object, to the target and back. */
  #askRelay(from: Agentlike, target: string): void {
    const answer = (verdict: Verdict, ms: number) =>
      this.clock.after(ms, () => from.node.take({ type: 'relayed', target, verdict }));
    if (from.kind === 'gateway') return this.#relayAt(from, target, answer);
    from.node.count(40);
    const open = this.gateways.filter(({ id }) => from.tunnels.get(id) === true);
    const gateway = open[0];
    if (gateway === undefined) return answer('unknown', 0.1);
    const there = this.network.travel(from.host, gateway.host, this.network.options.gatewayMs);
    const back = this.network.travel(gateway.host, from.host, this.network.options.gatewayMs);
    if (there === undefined || gateway.node.status !== 'running') return;
    this.clock.after(there, () =>
      this.#relayAt(gateway, target, (verdict, ms) => {
        if (back !== undefined) answer(verdict, ms + back);
      }),
    );
  }

  #relayAt(gateway: Gateway, target: string, answer: (verdict: Verdict, ms: number) => void): void {
    const agent = this.#byPeer.get(target);
    if (agent?.kind !== 'agent' || agent.tunnels.get(gateway.id) !== true) return answer('unknown', 0.2);
    const there = this.network.travel(gateway.host, agent.host, this.network.options.gatewayMs);
    const back = this.network.travel(agent.host, gateway.host, this.network.options.gatewayMs);
    if (there === undefined || back === undefined) return answer('silent', RELAY_MS);
    this.clock.after(there, () => {
      if (agent.node.status !== 'running') return answer('silent', RELAY_MS - there);
      agent.node.count(20);
      answer('alive', back + 0.5);
    });
  }

  /** Whether a gateway would route to it. */
  routable(gateway: Gateway, session: string): boolean {
    const agent = this.#byPeer.get(session);
    const tunnel = agent?.kind === 'agent' && agent.tunnels.get(gateway.id) === true;
    const entry = gateway.node.replica.get(session);
    return tunnel && entry?.state === 'SERVING' && livenessOf(gateway.node.state, session) === 'alive';
  }

  running(): Agent[] {
    return this.agents.filter(({ node }) => node.status === 'running');
  }

  /** Roots of all running replicas, to be compared. */
  fingerprint(replica: Replica): string {
    return this.issuers
      .map(({ id }) => {
        const { live, left } = replica.fingerprint(id);
        return `${live.toString(16)}/${left.toString(16)}`;
      })
      .join(' ');
  }

  agree(): boolean {
    const all = [...this.running(), ...this.gateways.filter(({ node }) => node.status === 'running')];
    return new Set(all.map(({ node }) => this.fingerprint(node.replica))).size <= 1;
  }
}
